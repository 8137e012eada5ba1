//! Supervision through its public interface: the twenty lines of its semantics (`line_NN_…`) and the traps of `ractor`
//! (`trap_…`); and the gates of what tenants share.

#[cfg(test)]
mod admission;
#[cfg(test)]
mod child_scope;
#[cfg(test)]
mod lasting_work;
#[cfg(test)]
mod lines_children;
#[cfg(test)]
mod lines_lives;
#[cfg(test)]
mod lines_requests;
#[cfg(test)]
mod lines_restarts;
#[cfg(test)]
mod support;
#[cfg(test)]
mod traps;

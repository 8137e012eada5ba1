//! Supervision through its public interface, the pitfalls of `ractor`, and the admission gates of shared resources.

#[cfg(test)]
mod admission;
#[cfg(test)]
mod child_scope;
#[cfg(test)]
mod lasting_work;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod ractor_pitfalls;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod restarts;
#[cfg(test)]
mod specs_and_order;
#[cfg(test)]
mod support;

//! The sandbox of a session, supervised: with real sandboxes, which really die.

#[cfg(test)]
mod admitted;
#[cfg(test)]
mod bed;
#[cfg(test)]
mod deaths;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod notes;
#[cfg(test)]
mod pauses;
#[cfg(test)]
#[path = "../../../crates/sandbox/tests/support/processes.rs"]
#[expect(dead_code, reason = "it has what the tests of sandboxes need, too")]
mod processes;
#[cfg(test)]
mod rests;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod source;
#[cfg(test)]
mod started;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod unused;

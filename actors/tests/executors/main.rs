//! The sandbox of a session, supervised: with real sandboxes, which really die.

#[cfg(test)]
mod admitted;
#[cfg(test)]
mod content;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod pause_failures;
#[cfg(test)]
mod pauses;
#[cfg(test)]
#[path = "../../../crates/sandbox/tests/support/processes.rs"]
#[expect(dead_code, reason = "the tests of sandboxes use the rest of the module")]
mod processes;
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

//! The behaviour of the conversation room through its public API.

#[cfg(test)]
mod artifacts;
#[cfg(test)]
mod cancellation;
#[cfg(test)]
mod compaction;
#[cfg(test)]
mod compaction_cancelled;
#[cfg(test)]
mod compaction_cuts;
#[cfg(test)]
mod container;
#[cfg(test)]
mod driver;
#[cfg(test)]
mod effects;
#[cfg(test)]
mod fork;
#[cfg(test)]
mod format;
#[cfg(test)]
mod hosted_crash;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod machine;
#[cfg(test)]
mod model_change;
#[cfg(test)]
mod outside;
#[cfg(test)]
mod pre_call_hook;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod session_events;
#[cfg(test)]
mod session_view;
#[cfg(test)]
mod spans;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tools;

//! The behaviour of the conversation room through its public API.

#[cfg(test)]
mod compaction;
#[cfg(test)]
mod format;
#[cfg(test)]
mod machine;
#[cfg(test)]
mod model_calls;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod spans;
#[cfg(test)]
mod support;
#[cfg(test)]
mod turns;

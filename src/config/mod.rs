//! Configuration (specification 13): a file, the environment and code, in layers.
//!
//! [`Settings`] is one layer, in which everything is optional; [`Config`] is what the layers come to. A layer
//! that is laid over another wins where it says something: code over the environment over the file over the
//! defaults, and a session's or a call's own layer over all of them ([`Config::with`]).
//!
//! Owns no state: a configuration is a value. But for the container engine: what is found of it is shared by a configuration's
//! clones, as a host's sessions must. Nothing here is global, and only [`Environment::of_process`] looks at the process.

mod artifacts;
mod compaction;
#[cfg(feature = "docker")]
mod engine;
mod environment;
mod error;
mod file;
mod paths;
mod pool;
mod sandbox;
mod settings;
mod skills;

pub use artifacts::{ArtifactSettings, SessionTtl};
pub use compaction::CompactionSettings;
pub use environment::{Environment, VARIABLES, Variable};
pub use error::ConfigError;
pub use pool::PoolSettings;
pub use sandbox::{ExecutorKind, parse_network, parse_size};
pub use settings::{ApiProfile, Config, Settings};
pub use skills::{SkillSettings, parse_activation};

#[cfg(test)]
mod tests;

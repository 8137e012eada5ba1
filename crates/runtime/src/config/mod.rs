//! The configuration (specification 13): a file, the environment and code, in layers.
//!
//! [`Settings`] is one layer, in which everything is optional. [`Config`] is the result of merging the layers. Code wins over the
//! environment, the environment over the file, and the file over the defaults. A session or a call may add its own layer over all
//! of them ([`Config::with`]).
//!
//! State: none; a configuration is a value. One exception: its clones share the container engine that was detected. Nothing here
//! is global, and only [`ProcessEnv::from_process`] reads the process.

mod error;
mod resolved_config;
mod settings;

mod artifacts;
mod compaction;
mod mcp;
mod models;
mod pool;
mod sandbox;
mod serve;
mod skills;

mod file;
mod keys;
mod paths;
mod process_env;

pub use artifacts::{ArtifactSettings, SessionTtl};
pub use compaction::CompactionSettings;
pub use error::ConfigError;
pub use keys::{CONFIG_KEYS, ConfigKey};
pub use models::{ModelSettings, TokenPrice};
pub use pool::PoolSettings;
pub use process_env::{MODEL_KEYS, ProcessEnv, VARIABLES, Variable};
pub use resolved_config::Config;
pub use sandbox::{ExecutorKind, PACKAGE_REGISTRIES, parse_network, parse_size};
pub use serve::ServeSettings;
pub use settings::{ApiProfile, Settings};
pub use skills::{SkillSettings, parse_activation};

#[cfg(test)]
mod tests;

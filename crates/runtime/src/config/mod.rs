//! The configuration (specification 13): a file, the environment and code, in layers.
//!
//! [`Settings`] is one layer, in which everything is optional. [`Config`] is the result of merging the layers. Code wins over the
//! environment, the environment over the file, and the file over the defaults. A session or a call may add its own layer over all
//! of them ([`Config::with`]).
//!
//! State: none; a configuration is a value. There is one exception: its clones share the detected container engine.
//! Nothing here is global, and only [`ProcessEnv::from_process`] reads the environment of the process.

mod error;
mod resolved_config;
mod sections;
mod settings;
mod variables;

mod file;
mod keys;
mod paths;
mod process_env;
mod values;

pub use error::ConfigError;
pub use keys::{CONFIG_KEYS, ConfigKey};
pub use process_env::ProcessEnv;
pub use resolved_config::Config;
pub use sections::artifacts::{ArtifactSettings, SessionTtl};
pub use sections::compaction::CompactionSettings;
pub use sections::models::{ModelSettings, TokenPrice};
pub use sections::pool::PoolSettings;
pub use sections::sandbox::{ExecutorKind, PACKAGE_REGISTRIES, parse_network, parse_size};
pub use sections::serve::ServeSettings;
pub use sections::skills::{SkillSettings, parse_activation};
pub use settings::{ApiProfile, Settings};
pub use variables::{MODEL_KEYS, VARIABLES, Variable};

#[cfg(test)]
mod tests;

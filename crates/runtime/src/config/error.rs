//! The errors of a configuration.

use std::path::PathBuf;

/// A configuration that cannot be used. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration file `{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not TOML, or a value in it has the wrong type.
    #[error("the configuration file `{}` is not valid: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        reason: String,
    },
    /// The file has an unknown key.
    #[error("the configuration file `{}` has an unknown key `{key}`", path.display())]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key, with the names of its tables.
        key: String,
        /// The most similar known key, if there is one.
        suggestion: Option<&'static str>,
        /// All keys known in that table.
        known: Vec<&'static str>,
    },
    /// An environment variable has a value that cannot be used.
    #[error("the environment variable {name} cannot be used: {reason}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A setting has a value that cannot be used.
    #[error("the setting `{key}` cannot be used: {reason}")]
    Setting {
        /// The setting.
        key: &'static str,
        /// What is wrong.
        reason: String,
    },
}

impl ConfigError {
    /// What the user can do about it, if that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownKey { suggestion: Some("key_env"), key, .. }
                if key.ends_with(".key") || key.ends_with(".api_key") =>
            {
                Some(
                    "put the key into an environment variable, and the variable's name into `key_env`"
                        .to_owned(),
                )
            }
            Self::UnknownKey { suggestion: Some(suggestion), .. } => {
                Some(format!("did you mean `{suggestion}`?"))
            }
            Self::UnknownKey { known, .. } => Some(format!("the known keys are {}", known.join(", "))),
            Self::Unreadable { .. } => {
                Some("CONJURE_CONFIG and `--config` name the file; without them it is optional".to_owned())
            }
            _ => None,
        }
    }
}

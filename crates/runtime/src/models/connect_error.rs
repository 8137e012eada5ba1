//! [`ConnectError`]: why a model cannot be called.

use conjure_model_http::HttpConfigError;

use crate::models::model_target::ModelTargetError;

/// Why a model cannot be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No service belongs to the name.
    #[error(transparent)]
    Target(#[from] ModelTargetError),
    /// The service needs a key, but its variable is not set.
    #[error("the model `{model}` needs a key, and `{variable}` is not set")]
    NoKey {
        /// The model.
        model: String,
        /// The environment variable of the key.
        variable: String,
    },
    /// This build has no client for the API.
    #[error("the model `{model}` cannot be called: this program was built without the feature `{feature}`")]
    NotBuilt {
        /// The model.
        model: String,
        /// The feature of the client.
        feature: &'static str,
    },
    /// The key, an address or a header cannot be used.
    #[error("{error}")]
    Http {
        /// What cannot be used.
        error: HttpConfigError,
        /// The environment variable of the key, if one is sent.
        variable: Option<String>,
    },
    /// An option of the model cannot be used.
    #[error("the model `{model}` cannot be called: {reason}")]
    Option {
        /// The model.
        model: String,
        /// What is wrong with it.
        reason: String,
    },
}

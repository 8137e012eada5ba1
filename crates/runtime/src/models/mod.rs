//! The models that a configuration and the environment name: the service of each name, and a client of it.

mod address;
#[cfg(feature = "model-http")]
mod call_body;
mod call_settings;
#[cfg(feature = "model-http")]
mod connect;
#[cfg(feature = "model-http")]
mod connect_error;
#[cfg(feature = "model-http")]
mod context;
#[cfg(feature = "model-http")]
mod fallback;
#[cfg(feature = "model-http")]
mod http_settings;
mod model_target;

#[cfg(not(feature = "model-http"))]
mod no_clients;

pub use call_settings::{CallSettings, ToolChoice};
#[cfg(feature = "model-http")]
pub use connect::{ConnectedModel, ModelClients};
#[cfg(feature = "model-http")]
pub use connect_error::ConnectError;
pub use model_target::{KeyVariable, ModelTarget, ModelTargetError};

#[cfg(not(feature = "model-http"))]
pub(crate) use no_clients::ModelClients;

#[cfg(feature = "anthropic")]
pub(crate) use http_settings::timeouts;

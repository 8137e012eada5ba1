//! Client of the Messages API, as a streaming [`Model`](conjure_conversation::Model).
//!
//! How a call runs:
//!
//! - `request_body` writes the body.
//! - `conjure_model_http`, the client of all model services, sends it. It retries a failed attempt while no output was shown.
//! - `message_accumulator` and `block` collect the events of the response.
//!
//! [`hosted`] has the Skills and Files APIs and the service's containers. They use the same client.
//!
//! This crate has no session, no history and no actor. It reads no environment variable. It starts no task, except to read uploaded files
//! on blocking threads. The API key is never in an error, a log or `Debug`.

#[cfg(feature = "fake")]
pub mod fake;
mod response;

pub mod hosted;

mod config;
mod options;

mod client_state;
mod messages;
mod passthrough;

mod request_body;
mod wire;

pub use config::{ApiProfile, Caching, Config, ConfigError, DEFAULT_BASE_URL};
pub use conjure_model_http::{
    HttpConfigError, ModelPrices, OutputShown, PlaintextPolicy, Prices, ResponseLimits, ServiceError,
    SseError, SseEvent, SseParser, StreamError, Timeouts,
};
pub use messages::{Client, Messages};
pub use options::ModelOptions;
pub use passthrough::{PassthroughBody, PassthroughRequest, PassthroughResponse};
pub use response::message_accumulator::MessageAccumulator;

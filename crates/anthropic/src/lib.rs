//! Client of the Messages API, as a streaming [`Model`](conjure_conversation::Model).
//!
//! The way of a call: its body is written (`request_body`) and sent by the client of all model services (`conjure_model_http`), which
//! repeats a failed attempt while no output was shown; its events are collected (`message_accumulator`, `block`).
//!
//! The Skills and Files APIs and the service's containers are in [`hosted`], over the same client.
//!
//! This crate has no session, no history and no actor. It reads no environment variable. It starts no task except blocking reads of
//! uploaded files. The API key is never in an error, a log or `Debug`.

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
pub use messages::{Client, Messages, ResponseEvent, ResponseEventStream};
pub use options::ModelOptions;
pub use passthrough::{PassthroughBody, PassthroughRequest, PassthroughResponse};
pub use response::api_response::ApiResponse;
pub use response::message_accumulator::MessageAccumulator;

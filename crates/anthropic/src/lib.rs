//! Client of the Messages API, as a streaming [`Model`](conjure_conversation::Model).
//!
//! The way of a call: the key's rate limiter admits it (`limiter`), its body is written (`request_body`) and sent (`transport`), events
//! are parsed (`sse`) and collected (`message_accumulator`, `block`, `tool_input`). While no output was shown, a failed attempt is
//! repeated (`model_call`, `retry`).
//!
//! The Skills and Files APIs and the service's containers are in [`hosted`], over the same client.
//!
//! This crate has no session, no history and no actor. It reads no environment variable. It starts no task except blocking reads of
//! uploaded files. The API key is never in an error, a log or `Debug`.

#[cfg(feature = "fake")]
pub mod fake;

pub mod hosted;

mod config;
mod options;
mod prices;

mod messages;
mod model_call;
mod response_stream;

mod attempt_error;
mod container_gone;
mod effects;
mod http_date;
mod jitter;
mod limiter;
mod request_body;
mod retry;
mod transport;

mod api_response;
mod block;
mod events;
mod message_accumulator;
mod raw_object;
mod sse;
mod tool_input;

pub use api_response::ApiResponse;
pub use config::{
    ApiProfile, Caching, Config, ConfigError, DEFAULT_BASE_URL, PlaintextPolicy, ResponseLimits, Timeouts,
};
pub use message_accumulator::{MessageAccumulator, OutputShown, StreamError};
pub use messages::{Client, Messages, ResponseEvent, ResponseEventStream};
pub use options::ModelOptions;
pub use prices::{ModelPrices, Prices};
pub use sse::{SseError, SseEvent, SseParser};

//! Model services over HTTP: what is the same for every API of them.
//!
//! A crate for one API implements [`Wire`] and [`Decoder`], writes an [`HttpCall`] and gives it to an [`HttpClient`]. The client does the
//! rest: the key's rate limiter admits the call (`limiter`), the body is sent (`transport`), events are parsed (`sse`) and given to the
//! decoder (`response_stream`). While no output was shown, a failed attempt is repeated (`model_call`, `retry`).
//!
//! This crate has no session, no history and no actor. It reads no environment variable and starts no task. The API key is never in an
//! error, a log or `Debug`.

pub mod exchange;
#[cfg(feature = "fake")]
pub mod fake;

mod config;
mod known_models;
mod prices;

mod call_span;
mod client;
mod client_state;
mod model_call;
mod model_list;
mod response_stream;

mod decoder;
mod http_call;
mod service_error;
mod wire;

mod attempt_error;
mod error_builder;
mod http_date;
mod idle_timer;
mod limiter;
mod retry;
mod tls;
mod transport;

mod raw_object;
mod sse;
mod token_estimate;
mod tool_input;

pub use client::{CallEvent, HttpClient};
pub use config::{
    HttpConfig, HttpConfigError, KeyHeader, PlaintextPolicy, ResponseLimits, Timeouts, is_secret_header,
};
pub use decoder::{Decoder, OutputShown, StreamError};
pub use http_call::{Delivery, HttpCall};
pub use known_models::{KNOWN_MODELS, KnownModel, known_model};
pub use model_list::ListedModel;
pub use prices::{ModelPrices, Prices};
pub use raw_object::{RawObject, quoted};
pub use reqwest::Url;
pub use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
pub use retry::RetryAdvice;
pub use service_error::{ServiceError, error_kind_of_status};
pub use sse::{SseError, SseEvent, SseParser};
pub use token_estimate::{RequestSize, TokenEstimator};
pub use tool_input::{InputCompletion, finish_input, is_object};
pub use wire::Wire;

//! Model services over HTTP: the part that is the same for every API.
//!
//! A crate for one API implements [`ServiceApi`] and [`Decoder`] for a [`ServiceModel`]. If its client has more than model calls, it
//! implements [`Wire`] in place of [`ServiceApi`], writes an [`HttpCall`] and gives it to an [`HttpClient`]. The client does the rest:
//!
//! - The key's rate limiter admits the call (`limiter`).
//! - The transport sends the body (`transport`).
//! - The parser reads events (`sse`) and passes them to the decoder (`response_stream`).
//! - A failed attempt is retried while no output was shown (`model_call`, `retry`).
//!
//! This crate has no session, no history and no actor. It reads no environment variable and starts no task. The API key is never in an
//! error, a log or `Debug`.

mod calls;
mod connection;
#[cfg(feature = "fake")]
pub mod fake;
pub mod service_requests;
mod stream;

mod config;
mod known_models;
mod prices;

pub use calls::call_options::{CallOptions, FieldError};
pub use calls::client::HttpClient;
pub use calls::http_call::HttpCall;
pub use calls::model_list::ListedModel;
pub use calls::service_error::{ServiceError, error_kind_of_status};
pub use calls::service_model::{DecoderContext, ServiceApi, ServiceModel};
pub use calls::wire::Wire;
pub use config::{
    HttpConfig, HttpConfigError, KeyHeader, PlaintextPolicy, ResponseLimits, Timeouts, is_secret_header,
};
pub use connection::retry_policy::RetryAdvice;
pub use known_models::{KNOWN_MODELS, KnownModel, known_model};
pub use prices::{ModelPrices, Prices};
pub use reqwest::Url;
pub use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
pub use stream::decoder::{Decoder, OutputShown, StreamError};
pub use stream::raw_object::{RawObject, quoted};
pub use stream::sse::{SseError, SseEvent, SseParser};
pub use stream::token_estimate::{RequestSize, TokenEstimator};
pub use stream::tool_input::{InputCompletion, finish_input, is_object};
pub use stream::tool_names::ToolNames;

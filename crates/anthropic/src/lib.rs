//! The wire of Conjure: the Messages API, streamed, as a [`Model`](conjure_conversation::Model).
//!
//! Way of a call: the [`Client`] of a key lends it a place at the key's limiter; the body is written (`body`), sent
//! (`transport`), read piece by piece (`sse`), collected (`accumulate`, `block`, `input`) and, as long as nothing of
//! it was shown, tried again (`call`, `retry`, `limiter`).
//!
//! What the service hosts, its skills, files and containers, is spoken of in [`hosted`], over the same client.
//!
//! What is absent: no session, no history, no actor; no environment variable is read; no task is started but the
//! blocking reads of what is uploaded, each awaited or left to end by itself. The key is never in an error, a log or
//! `Debug`.

#[cfg(feature = "fake")]
pub mod fake;

pub mod hosted;

mod accumulate;
mod answer;
mod block;
mod body;
mod call;
mod config;
mod effects;
mod failure;
mod fields;
mod gone;
mod http_date;
mod input;
mod limiter;
mod messages;
mod options;
mod prices;
mod random;
mod retry;
mod sse;
mod transport;

pub use accumulate::{Accumulator, Shown, StreamError};
pub use answer::Answer;
pub use config::{
    AnswerLimits, Caching, Config, ConfigError, DEFAULT_BASE_URL, Plaintext, Profile, Timeouts,
};
pub use messages::{AnswerEvent, AnswerStream, Client, Messages};
pub use options::Options;
pub use prices::{ModelPrices, Prices};
pub use sse::{SseError, SseEvent, SseParser};

//! Clients of OpenAI's two APIs, as streaming [`Model`](conjure_conversation::Model)s.
//!
//! - [`Chat`] is for Chat Completions, which most other servers support too.
//! - [`Responses`] is for the Responses API of OpenAI itself.
//!
//! `request_body` writes a call, `conjure-model-http` sends it, and a decoder reads the events of its answer. Each decoder builds two forms
//! of the answer: the canonical blocks, which can be sent to every service, and the native form, which its own service gets back unchanged.
//!
//! This crate has no session, no history and no actor. It reads no environment variable and starts no task. The API key is never in an
//! error, a log or `Debug`.

#[cfg(feature = "fake")]
pub mod fake;

mod chat;
mod responses;

mod canonical_blocks;
mod error_body;
mod history;
mod object_members;
mod preview_events;
mod provider;
mod request_writer;
mod tool_names;
mod usage;

pub use chat::{Chat, ChatApi, ChatDecoder};
pub use responses::{Responses, ResponsesApi, ResponsesDecoder};

/// The address of OpenAI's own service.
pub const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

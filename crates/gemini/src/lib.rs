//! Client of the Gemini API (`streamGenerateContent`), as a streaming [`Model`](conjure_conversation::Model).
//!
//! It writes the body of a call (`request_body`, `contents`) and reads the pieces of its answer (`decoder`, `answer_parts`).
//! [`conjure_model_http`] does everything else, from the rate limiter to TLS.
//!
//! **Two forms of an answer.** The service signs its thoughts. It refuses a call whose signature is not sent back in its original part. So
//! an answer has blocks for the conversation and also its parts, byte for byte ([`NativeContent`](conjure_conversation::NativeContent)).
//! The parts are sent back to the same service and model. Answers of any other origin are translated.
//!
//! This crate has no session and no history. It reads no environment variable and starts no task.

#[cfg(feature = "fake")]
pub mod fake;
mod response;

mod gemini;

mod contents;
mod request_body;

mod call_ids;
mod native_parts;
mod tool_names;

pub use gemini::{DEFAULT_BASE_URL, Gemini, GeminiApi, KEY_HEADER};
pub use response::decoder::GeminiDecoder;

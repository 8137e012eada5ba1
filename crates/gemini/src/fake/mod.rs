//! A fake of the Gemini service for tests.
//!
//! It speaks the service's HTTP on loopback: `generateContent` and `streamGenerateContent`, errors of every type, under `/v1` and
//! `/v1beta`. It validates requests as the service does: unknown fields, names of functions, the order of calls and results, and
//! signatures. Each signature must be sent back in its original part. Its replies come from scripts (`conjure_conversation::scripted`),
//! from turns made in code ([`Reply`]), or from faults, which come first.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use conjure_conversation::Block;
//! use conjure_gemini::fake::{FakeGemini, Reply};
//!
//! let fake = FakeGemini::builder().turns([Reply::blocks(vec![Block::text("Four.")])]).start().await?;
//! assert!(fake.base_url().ends_with("/v1"));
//! assert!(fake.requests().is_empty());
//! fake.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! **Choosing the turn.** The fake derives the position in a script from the request's history, not from a counter. So a client that
//! repeats a request, loses a response, or restarts gets the turn that fits its history. Any number of sessions can play one script at
//! once.
//!
//! - The position is the number of the model's contents in the history.
//! - The fake records which turn follows which position. A failed turn (an error, a cut) leaves no trace in a history, so the fake records
//!   it as played. The next request from the same position gets the turn after it.
//! - Positions belong to a session, which is identified by its first message. Give sessions different first messages if a script has
//!   failures.
//!
//! All state is in memory and ends with the fake.

mod answer_writer;
mod field_names;
mod history;
mod refusal;
mod reply;
mod server;
mod service;
mod signature;
mod validate;

pub use conjure_model_http::fake::RecordedRequest;
pub use refusal::Refusal;
pub use reply::Reply;
pub use server::{FakeGemini, FakeGeminiBuilder};

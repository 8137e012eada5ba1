//! A fake of OpenAI's two APIs for tests.
//!
//! It speaks HTTP on loopback: `/v1/chat/completions`, `/v1/responses` and `/v1/models`, streamed or not. It validates requests as the
//! service does: members, roles, the pairing of calls and results, the names of tools. Its replies come from scripts
//! (`conjure_conversation::scripted`), from turns made in code ([`Reply`]), or from faults, which come first.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use conjure_conversation::Block;
//! use conjure_openai::fake::{FakeOpenAi, Reply};
//!
//! let fake = FakeOpenAi::builder().turns([Reply::blocks(vec![Block::text("Four.")])]).start().await?;
//! assert!(fake.base_url().starts_with("http://127.0.0.1:"));
//! assert!(fake.requests().is_empty());
//! fake.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! **Choosing the turn.** The position in a script is the number of answers in the request's history. So a client that repeats a request or
//! restarts gets the turn that fits its history, and any number of sessions can play one script at once.
//!
//! A failed turn leaves no trace in a history, so the fake records it as played, for the session. A session is identified by the model and
//! the request's `prompt_cache_key`, or else by the model and the first message.
//!
//! All state is in memory and ends with the fake.

mod answer;
mod chat_history;
mod chat_writer;
mod checks;
mod error;
mod reply;
mod responses_history;
mod responses_writer;
mod server;
mod service;
mod validated;

pub use conjure_model_http::fake::RecordedRequest;
pub use error::FakeError;
pub use reply::Reply;
pub use server::{FakeOpenAi, FakeOpenAiBuilder};

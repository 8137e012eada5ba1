//! A fake of the Messages service for tests.
//!
//! It speaks the service's HTTP on loopback: both API profiles, responses with and without streaming, errors of every type with their
//! headers, and rate limits. It validates requests as the service does and names the position of a mistake (`messages.N.content.M`). Its
//! replies come from scripts (`conjure_conversation::scripted`), from turns made in code ([`Reply`]), or from faults, which come first.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use conjure_anthropic::fake::{FakeMessages, Reply};
//! use conjure_conversation::Block;
//!
//! let fake = FakeMessages::builder().turns([Reply::blocks(vec![Block::text("Four.")])]).start().await?;
//! assert!(fake.base_url().starts_with("http://127.0.0.1:"));
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
//! - The position is the number of the assistant's *blocks* in the history. Messages do not count, because a resumed pause joins two
//!   responses in one message.
//! - The fake records which turn follows which position. For an unknown history it counts the assistant's messages.
//! - A failed turn (an error, a cut) leaves no trace in a history, so the fake records it as played. The next request from the same
//!   position gets the turn after it.
//! - Positions belong to a session. The request's `metadata.user_id` identifies the session, else its first message does. Give sessions a
//!   `user_id` if a script has failures.
//!
//! It compacts histories if a request asks for it (`context_management`, with the beta in the header). Above the requested number of
//! tokens, by the fake's own count, a response begins with a `compaction` block.
//!
//! **Skills, files and containers.** The fake stores skills with their versions, and files. Both profiles' endpoints serve them. In a turn
//! of [`FakeToolRun`] the service's model runs a command, and the files that it produces can be downloaded.
//!
//! With [`hosting`](FakeMessagesBuilder::hosting), the fake simulates containers too. A request with the code execution tool runs in one,
//! and the response names its id. The request's skills and files must exist. The fake refuses a container that has expired, by the clock or
//! by [`FakeMessages::expire_containers`].
//!
//! All state is in memory and ends with the fake.

mod answer;
mod auth;
mod compaction;
mod history;
mod hosted;
mod rate_limit;
mod refusal;
mod reply;
mod response_writer;
mod server;
mod service;
mod validate;

pub use conjure_model_http::fake::RecordedRequest;
pub use hosted::FakeToolRun;
pub use rate_limit::RateLimit;
pub use refusal::Refusal;
pub use reply::Reply;
pub use server::{FakeMessages, FakeMessagesBuilder};

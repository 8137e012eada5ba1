//! A fake of the Messages service: a public test utility, and the program `examples/fake_messages.rs`.
//!
//! It speaks the service's HTTP on loopback: both header profiles, streamed answers and whole ones, errors of every
//! type with their headers, rate limits. It checks what it is sent as the service does and names the place of a
//! mistake (`messages.N.content.M`). What it answers comes from scripts (`conjure_conversation::scripted`), from
//! turns made in code ([`Reply`]), or from faults that go first.
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
//! **Which turn answers.** The place in a script is read from the history that a request carries, not from a counter:
//! a client that repeats a request, loses an answer, or is killed and comes back gets the turn that fits what it
//! remembers, and any number of sessions play one script at once without being told apart. The history's place is
//! the number of the assistant's *blocks* in it (a resumed pause joins two answers in one message); the fake notes
//! which turn comes after which place. A history that it has not made itself counts by its assistant messages. A turn
//! that fails (an error, a cut) leaves no trace in a history; so it is noted that it was taken, and the next request
//! from the same place gets the turn after it. That note, and the notes of places, belong to a session: to the
//! `metadata.user_id` of the request, or else to its first message. Sessions that share both share the failures, so
//! give them a `user_id` when a script has any.
//!
//! It compacts histories itself where a request wants that (`context_management`, with the beta named in the header): from so many
//! tokens on, as it counts them, an answer begins with a `compaction` block.
//!
//! **What it hosts.** It keeps skills with their versions, and files, behind the endpoints of both profiles, as long as it
//! runs: what is uploaded can be listed, deleted, and fetched where the service gives it out. A turn of [`HostedRun`] is one
//! in which the service's model runs something; the files that it makes can be downloaded then. With
//! [`hosting`](FakeMessagesBuilder::hosting), containers are minded too: a request with the code execution tool runs in one,
//! whose id the answer names; skills and files that it asks for must be there; a container that has expired, by the clock
//! or by [`FakeMessages::expire_containers`], is refused.
//!
//! It owns its listener, its connections and its notes, all in memory; they end with it, and in a crash with the
//! process.

mod access;
mod captured;
mod check;
mod compaction;
mod delivery;
mod history;
mod hosted;
mod limit;
mod refusal;
mod reply;
mod scenes;
mod server;
mod service;
mod stream;

pub use captured::Captured;
pub use hosted::HostedRun;
pub use limit::RateLimit;
pub use refusal::Refusal;
pub use reply::Reply;
pub use server::{FakeMessages, FakeMessagesBuilder};

//! `cargo bench --features full --bench serve [-- PART]`: what the server of the Managed Agents API costs beside the library, and what it
//! bears. PART is `requests`, `streams`, `hostile` or `pages`; all of them by default.
//!
//! The server is the built command, a process of its own, with SQLite in a data directory below `target` and a scripted model. The client is in
//! the process of the benchmark, on the same two cores, and speaks HTTP with little more than what is needed.
//!
//! - `requests`: creations, messages, lists and streams, sixteen at a time; whole sessions of eight turns through the server, and through the
//!   library in this process: `other` is the library. Pages of models need no session, and show what HTTP costs by itself.
//! - `streams`: 1,000 sessions with a stream each: the memory of the server, and the time from an event's `processed_at` to the client that
//!   reads it, in whole milliseconds of the same clock. Then the same while one client reads nothing of a stream of megabytes.
//! - `hostile`: what a list takes while 1,000 connections send a byte a second, and what a body of a gigabyte comes to.
//! - `pages`: pages of a session of 100,000 events through the library and through the server, at its ends and in its middle.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(
    clippy::disallowed_methods,
    reason = "it measures time, and the program is the one that is measured"
)]

#[path = "../support/harness.rs"]
mod harness;
mod hostile;
#[path = "../support/http_client.rs"]
mod http_client;
mod library;
mod pages;
mod requests;
#[path = "../support/server_process.rs"]
mod server_process;
mod setup;
mod streams;
#[path = "../support/times.rs"]
mod times;

use crate::harness::Result;

fn main() -> Result<()> {
    // `cargo bench` passes a flag of its own.
    let part = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    harness::run(measure(part))
}

async fn measure(part: Option<String>) -> Result<()> {
    let is_wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    println!("load before: {}", setup::load()?);
    if is_wanted("requests") {
        requests::measure().await?;
    }
    if is_wanted("streams") {
        streams::measure().await?;
    }
    if is_wanted("hostile") {
        hostile::measure().await?;
    }
    if is_wanted("pages") {
        pages::measure().await?;
    }
    println!("load after: {}", setup::load()?);
    Ok(())
}

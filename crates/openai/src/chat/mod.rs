//! The client of Chat Completions, which most servers support.

mod assistant_message;
mod client;
mod decoder;
mod list_item;
mod request_body;

pub use client::Chat;
pub use decoder::ChatDecoder;

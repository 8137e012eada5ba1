//! The client of Chat Completions, which most servers support.

mod api;
mod assistant_message;
mod decoder;
mod list_item;
mod request_body;

pub use api::{Chat, ChatApi};
pub use decoder::ChatDecoder;

//! The client of the Responses API, the preferred API for OpenAI's own models.

mod client;
mod decoder;
mod output_item;
mod request_body;
mod streamed_item;

pub use client::Responses;
pub use decoder::ResponsesDecoder;

//! The client of the Responses API, the preferred API for OpenAI's own models.

mod api;
mod decoder;
mod output_item;
mod request_body;
mod streamed_item;

pub use api::{Responses, ResponsesApi};
pub use decoder::ResponsesDecoder;

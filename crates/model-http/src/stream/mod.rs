//! Streamed responses, and helpers for the decoders of every wire.

pub(crate) mod decoder;
pub(crate) mod raw_object;
pub(crate) mod response_stream;
pub(crate) mod sse;
pub(crate) mod token_estimate;
pub(crate) mod tool_input;
pub(crate) mod tool_names;

//! Reads the responses of the service: pieces of an answer, usage and errors.

pub(crate) mod answer_parts;
pub(crate) mod decoder;
pub(crate) mod error_body;
pub(crate) mod finish_reason;
pub(crate) mod usage;

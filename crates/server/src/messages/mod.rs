//! Requests to the Messages API: translated for models behind other APIs, and their answers translated back.

mod answer;
mod answer_stream;
mod failure;
mod request;

pub(crate) use answer::MessageAnswer;
pub(crate) use answer_stream::stream_answer;
pub(crate) use failure::failure;
pub(crate) use request::{call_settings, model_request};

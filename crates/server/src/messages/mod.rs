//! Requests to the Messages API for models of other APIs: both the request and the response are converted.

mod answer;
mod answer_stream;
mod failure;
mod request;

pub(crate) use answer::MessageAnswer;
pub(crate) use answer_stream::stream_answer;
pub(crate) use failure::failure;
pub(crate) use request::{call_settings, model_request};

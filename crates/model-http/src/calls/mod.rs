//! Calls of a model service, from the request to the outcome.

pub(crate) mod attempt_error;
pub(crate) mod call_options;
pub(crate) mod call_span;
pub(crate) mod client;
pub(crate) mod client_state;
pub(crate) mod error_builder;
pub(crate) mod http_call;
pub(crate) mod model_call;
pub(crate) mod model_list;
pub(crate) mod service_error;
pub(crate) mod service_model;
pub(crate) mod wire;

//! The inputs and secrets of a session.

pub(crate) mod input_error;
pub(crate) mod inputs;
pub(super) mod session_inputs;
pub(crate) mod session_secrets;
pub(super) mod value_texts;

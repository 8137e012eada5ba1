//! The state that the recorded events define.

pub(crate) mod apply;
pub(crate) mod apply_response;
pub(crate) mod limits;
pub(crate) mod open_call;
pub(crate) mod running_turn;
pub(crate) mod session_state;

//! Opens a session from the options of `conjure run`.

pub(super) mod mcp_servers;
pub(super) mod model_source;
pub(super) mod open_session;
pub(super) mod prompt_input;
pub(super) mod run_plan;
pub(super) mod sandbox_flags;
pub(super) mod session_setup;

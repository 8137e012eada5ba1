//! Tools as the conversation sees them: definitions, calls, results, questions, and the port that runs them.

pub(crate) mod agent_toolset;
pub(crate) mod call_answer;
pub(crate) mod input_request;
pub(crate) mod server_tools;
pub(crate) mod tool;
pub(crate) mod tool_progress;
pub(crate) mod tool_runner;
pub(crate) mod tool_server;

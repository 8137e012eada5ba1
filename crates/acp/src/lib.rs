//! Sessions in editors, over the Agent Client Protocol (version 1). An editor starts `conjure acp` and talks to it over standard input and
//! output.
//!
//! [`serve`] serves one editor. Each session of the editor is a session of the runtime, and its workspace is the editor's directory. So the
//! session is recorded like any other, and the editor can load it after a restart.
//!
//! [`EditorModes`] is the approver of the runtime. In the mode `ask`, the editor asks its user before a tool changes something or runs a
//! command.
//!
//! The types of the protocol's crate are not part of the public API.

mod agent;
mod mcp_servers;
mod modes;
mod prompt_content;
mod turn_follower;
mod updates;

pub use agent::{EditorOptions, serve};
pub use modes::EditorModes;

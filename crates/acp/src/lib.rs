//! Sessions in editors, by the Agent Client Protocol (version 1): an editor starts `conjure acp` and talks to it over standard input and output.
//!
//! [`serve`] answers one editor. A session of the editor is a session of the runtime, with the editor's directory as its workspace, so it is recorded
//! like any other, and can be loaded after a restart. [`EditorModes`] is the approver of the runtime: in the mode `ask` the editor asks its user
//! before a tool changes something or runs a command.
//!
//! The types of the protocol's crate stay in this crate.

mod agent;
mod mcp_servers;
mod modes;
mod prompt;
mod turn;
mod updates;

pub use agent::{EditorOptions, serve};
pub use modes::EditorModes;

//! Runs the model's tool calls.
//!
//! A call's input is checked, a policy or a person approves it, and it runs in a sandbox or in the embedder's process. The result is
//! then redacted, cleaned and truncated. [`Toolbox`] does all of this and implements `conjure_conversation::ToolRunner`.
//!
//! A toolbox holds no conversation state. After a crash, the event log shows the calls that were running as started and not finished.

mod agent_toolset;
mod approver;
mod artifacts;
mod builtin;
mod current_tools_composer;
mod definition_check;
mod grant;
mod limits;
mod probe;
mod skills;
mod text;
mod tool;
mod tool_input;
mod tool_source;
mod toolbox;

#[cfg(any(test, feature = "test-util"))]
pub mod fake;

pub use approver::{AllowAll, Approver, DenyAll, approver_fn};
pub use artifacts::ArtifactTools;
pub use current_tools_composer::CurrentToolsComposer;
pub use definition_check::ToolboxError;
pub use limits::OutputLimits;
pub use probe::SandboxProbe;
pub use skills::{AllowedToolsPolicy, Interpreters, MAX_ACTIVE_SKILLS, SkillTools};
pub use text::call_text;
pub use tool::{CallerIdentity, Tool, ToolContext, ToolOutput, ToolStatus, tool_fn};
pub use tool_source::{SourcedTools, ToolSource};
pub use toolbox::{Toolbox, ToolboxBuilder};

//! What happens when the model calls a tool: its input is checked, a policy or a person allows it, it runs in a
//! sandbox or in the host, and its result is made fit for the history: bounded, redacted, plain.
//!
//! [`Toolbox`] is the whole of it and implements `conjure_conversation::ToolRunner`. It holds no state of a
//! conversation: a crash loses nothing here but the calls that were running, which the driver's records show as
//! started and not finished.

mod approver;
mod artifacts;
mod builtin;
mod input;
mod limits;
mod probe;
mod skills;
mod text;
mod tool;
mod toolbox;

#[cfg(any(test, feature = "test-util"))]
pub mod fake;

pub use approver::{AllowAll, Approver, DenyAll, approver_fn};
pub use artifacts::ArtifactTools;
pub use limits::OutputLimits;
pub use probe::SandboxProbe;
pub use skills::{AllowedToolsPolicy, Interpreters, MOST_ACTIVE, SkillTools};
pub use tool::{Caller, Tool, ToolContext, ToolOutcome, ToolStatus, tool_fn};
pub use toolbox::{Toolbox, ToolboxBuilder, ToolboxError, environment_secrets};

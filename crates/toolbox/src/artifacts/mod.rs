//! Artifacts in tool calls (ADR-0018, sections 5 and 6).
//!
//! References in inputs are resolved before a call runs, and commands find the session's artifacts in the sandbox.
//!
//! - Only a path input may be a reference, and only as a whole: `view.path`, `skills.read.path`, each argument of
//!   `skills.run_script`, and the declared inputs of an embedder's tool ([`Tool::path_inputs`](crate::Tool::path_inputs)). A URL inside a
//!   command or a file's text is plain text. Tools that write accept no reference, because artifacts are read-only.
//! - An unresolvable reference gives an error result that names the input and the reason. The call does not run.
//! - The approver sees the input as the model wrote it. Neither a grant nor a skill's `allowed-tools` covers a call that fetches a URL
//!   which the model wrote; the approver decides each time.
//! - Before each command and view, all artifacts with known content are installed in the sandbox's content directory, and commands
//!   get their paths in environment variables. Unregistered artifacts are removed before the next call.
//!
//! State: the installed names, in memory, for the life of the sandbox. A replacement sandbox gets its content from its supervisor.
//! The event log says which artifacts a session has, so a crash loses nothing.

mod artifact_tools;

mod call_artifacts;
mod errors;
mod installed_artifacts;

pub use artifact_tools::ArtifactTools;
pub(crate) use artifact_tools::is_url;
pub(crate) use call_artifacts::{CallArtifacts, EarlyResult};

#[cfg(test)]
mod tests;

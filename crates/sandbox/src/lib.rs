//! Executors for tool calls. One guest protocol, several kinds of sandbox.
//!
//! [`Executor`] is what a tool call needs: run a program, view, create, edit, list, read and write files. A host
//! may implement it for a backend of its own.

mod context;
mod error;
mod executor;
mod types;

pub use context::{ExecutionContext, NetworkPolicy};
pub use error::{SandboxError, SandboxErrorKind};
pub use executor::{CallOptions, ContentStream, Executor};
pub use types::{
    Command, CommandEnd, CommandOutcome, CommandOutput, DirectoryEntry, EntryKind, Input, Layout, LineRange,
    Listing, View, Written,
};

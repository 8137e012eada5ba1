//! Executors for tool calls. One guest protocol, several kinds of sandbox.
//!
//! [`Executor`] is what a tool call needs: run a program, view, create, edit, list, read and write files. A host
//! may implement it for a backend of its own. A [`Sandbox`] implements it over the guest's protocol, for every
//! [`Connector`].

mod connector;
mod context;
mod error;
mod executor;
mod mux;
mod operation;
mod sandbox;
mod types;

pub use connector::{Boundary, Connection, Connector, Isolation, SandboxGuard};
pub use context::{ExecutionContext, NetworkPolicy};
pub use error::{SandboxError, SandboxErrorKind};
pub use executor::{CallOptions, ContentStream, Executor};
pub use sandbox::{RunEvent, RunStream, Sandbox};
pub use types::{
    Command, CommandEnd, CommandOutcome, CommandOutput, DirectoryEntry, EntryKind, Input, Layout, LineRange,
    Listing, View, Written,
};
// What a connector of one's own says to the guest.
pub use conjure_guest::protocol::{Access, Hello, PROTOCOL_VERSION, Root};

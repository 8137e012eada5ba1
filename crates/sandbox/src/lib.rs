//! Executors for tool calls. One guest protocol, several kinds of sandbox.
//!
//! [`Executor`] is what a tool call needs: run a program, view, create, edit, list, read and write files. A host
//! may implement it for a backend of its own. A [`Sandbox`] implements it over the guest's protocol, for every
//! [`Connector`]; [`Local`] is the connector that isolates nothing.

#[cfg(all(feature = "local", not(target_os = "linux")))]
compile_error!(
    "the feature `local` of conjure-sandbox is for Linux only: the guest needs its process tree. Switch it off, or \
     run the host in a Linux machine or container"
);

mod connector;
mod context;
mod error;
mod executor;
#[cfg(all(feature = "local", target_os = "linux"))]
mod local;
mod mux;
mod operation;
mod sandbox;
mod types;

pub use connector::{Boundary, Connection, Connector, Isolation, SandboxGuard};
pub use context::{ExecutionContext, NetworkPolicy};
pub use error::{SandboxError, SandboxErrorKind};
pub use executor::{CallOptions, ContentStream, Executor};
#[cfg(all(feature = "local", target_os = "linux"))]
pub use local::Local;
pub use sandbox::{RunEvent, RunStream, Sandbox};
pub use types::{
    Command, CommandEnd, CommandOutcome, CommandOutput, DirectoryEntry, EntryKind, Input, Layout, LineRange,
    Listing, View, Written,
};
// What a connector of one's own says to the guest.
pub use conjure_guest::protocol::{Access, Hello, PROTOCOL_VERSION, Root};

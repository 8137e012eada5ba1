//! What a machine is asked before a skill runs on it.

use std::pin::Pin;

use crate::manifest::Base;

/// An answer that takes a while.
pub type ProbeFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ProbeError>> + Send + 'a>>;

/// Something could not be looked at: nothing is known of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProbeError {
    /// Why.
    pub message: String,
}

/// Whether a command is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandFound {
    /// It is not in the path.
    Absent,
    /// It is.
    Present {
        /// What it writes when it is asked for its version; empty when it was not asked, or writes nothing.
        said: String,
    },
}

/// Whether what runs can reach the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Network {
    /// It can, or some of it.
    Reachable,
    /// It cannot.
    None,
    /// Nobody has said.
    Unknown,
}

/// A view of the machine that a skill would run on.
pub trait Probe: Send + Sync {
    /// Whether a command is in the path, and, where `ask_version`, what it says of its version.
    fn command<'a>(&'a self, name: &'a str, ask_version: AskVersion) -> ProbeFuture<'a, CommandFound>;

    /// Whether a file or folder exists at a path beneath a base.
    fn file<'a>(&'a self, base: Base, path: &'a str) -> ProbeFuture<'a, bool>;

    /// Whether an environment variable is set, to whatever.
    fn variable<'a>(&'a self, name: &'a str) -> ProbeFuture<'a, bool>;

    /// Whether what runs can reach the network.
    fn network(&self) -> Network {
        Network::Unknown
    }
}

/// Whether it matters which version a command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AskVersion {
    /// The command is run for it.
    Yes,
    /// The command is not run.
    No,
}

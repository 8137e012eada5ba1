//! Queries about the machine, before a skill runs on it.

use std::pin::Pin;

use crate::manifest::PathBase;

/// The future result of a query.
pub type ProbeFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ProbeError>> + Send + 'a>>;

/// The query failed, so the answer is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProbeError {
    /// The reason.
    pub message: String,
}

/// The result of looking for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandProbe {
    /// It is not in `PATH`.
    NotFound,
    /// It exists.
    Found {
        /// What it prints for its version. Empty when it was not queried or prints nothing.
        version_output: String,
    },
}

/// Whether the sandbox can reach the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Network {
    /// It can reach some of it.
    Reachable,
    /// It cannot.
    None,
    /// Unknown.
    Unknown,
}

/// A view of the machine on which a skill would run.
pub trait Probe: Send + Sync {
    /// Looks for a command in `PATH`, and queries its version if requested.
    fn command<'a>(&'a self, name: &'a str, version_query: VersionQuery) -> ProbeFuture<'a, CommandProbe>;

    /// Whether a file or directory exists at a path beneath a base.
    fn file<'a>(&'a self, base: PathBase, path: &'a str) -> ProbeFuture<'a, bool>;

    /// Whether an environment variable is set.
    fn variable<'a>(&'a self, name: &'a str) -> ProbeFuture<'a, bool>;

    /// Whether the network is reachable.
    fn network(&self) -> Network {
        Network::Unknown
    }
}

/// Whether to query the version of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VersionQuery {
    /// Run the command to get its version.
    Yes,
    /// Do not run the command.
    No,
}

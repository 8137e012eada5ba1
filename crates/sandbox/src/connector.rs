//! How a sandbox comes to be: a [`Connector`] makes one and yields the byte stream to the guest in it.
//!
//! Everything that is special about a kind of sandbox lives in its connector; what runs over the stream is the
//! same for all of them ([`crate::Sandbox`]). A connector holds no state of a sandbox: that is in the
//! [`SandboxGuard`], which goes with the connection and ends the sandbox when it is dropped.

use std::fmt;

use conjure_guest::protocol::Hello;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::context::ExecutionContext;
use crate::error::SandboxError;
use crate::types::Layout;

/// Makes sandboxes of one kind.
pub trait Connector: Send + Sync + fmt::Debug {
    /// What a sandbox of this kind keeps apart from the host, known before one is made, so that a host can refuse
    /// a kind that is too weak.
    fn isolation(&self) -> Isolation;

    /// Makes a sandbox and starts the guest in it. Dropping the future releases what was made so far.
    ///
    /// # Errors
    /// When the context cannot be had, naming what is missing; nothing is weakened instead.
    fn connect<'a>(
        &'a self,
        context: &'a ExecutionContext,
    ) -> BoxFuture<'a, Result<Connection, SandboxError>>;
}

/// A sandbox whose guest was started, before the handshake.
pub struct Connection {
    /// What the guest says.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What the guest hears. Closing it ends the guest and everything it runs.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The greeting: what this sandbox is.
    pub hello: Hello,
    /// Where things lie in it.
    pub layout: Layout,
    /// Ends it.
    pub guard: Box<dyn SandboxGuard>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The greeting holds the environment, which may hold secrets: it is left out.
        f.debug_struct("Connection")
            .field("layout", &self.layout)
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

/// Holds a sandbox and everything that it occupies on the host. Dropping it kills the guest at once and
/// releases the rest; [`SandboxGuard::ended`] after the stream was closed is the gentle way.
pub trait SandboxGuard: Send + fmt::Debug {
    /// Waits until the guest has ended, and says how ("exit code 0", "signal 9 …"). May be dropped and asked again.
    fn ended(&mut self) -> BoxFuture<'_, String>;

    /// Kills the guest and waits until it is gone.
    fn kill(&mut self) -> BoxFuture<'_, ()>;
}

/// Whether a sandbox keeps something apart from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Boundary {
    /// The kernel enforces it, also against hostile commands.
    Enforced,
    /// Nothing enforces it: commands can do what the host's user can.
    Open,
}

/// What a sandbox keeps apart from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Isolation {
    /// Commands reach no files but the sandbox's.
    pub filesystem: Boundary,
    /// Commands reach no more of the network than the policy allows.
    pub network: Boundary,
    /// Commands see and signal no processes but the sandbox's.
    pub processes: Boundary,
    /// Memory, processes and processor time are limited.
    pub resources: Boundary,
}

impl Isolation {
    /// No boundary at all.
    pub const NONE: Self = Self {
        filesystem: Boundary::Open,
        network: Boundary::Open,
        processes: Boundary::Open,
        resources: Boundary::Open,
    };

    /// The names of the boundaries that are not enforced, for people.
    pub fn open(&self) -> impl Iterator<Item = &'static str> {
        [
            ("filesystem", self.filesystem),
            ("network", self.network),
            ("processes", self.processes),
            ("resources", self.resources),
        ]
        .into_iter()
        .filter_map(|(name, boundary)| (boundary == Boundary::Open).then_some(name))
    }

    /// Whether every boundary that `floor` enforces is enforced here too.
    #[must_use]
    pub fn satisfies(&self, floor: &Self) -> bool {
        let mine: Vec<_> = self.open().collect();
        let allowed: Vec<_> = floor.open().collect();
        mine.iter().all(|name| allowed.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_refuses_what_is_weaker_and_takes_what_is_stronger() {
        let network = Isolation { network: Boundary::Enforced, ..Isolation::NONE };
        assert!(network.satisfies(&Isolation::NONE));
        assert!(network.satisfies(&network));
        assert!(!Isolation::NONE.satisfies(&network));
        assert_eq!(network.open().collect::<Vec<_>>(), ["filesystem", "processes", "resources"]);
    }
}

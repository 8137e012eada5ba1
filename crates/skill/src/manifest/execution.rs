//! How a skill behaves when it runs.

use std::time::Duration;

/// What a skill's author says of its behaviour: hints for scheduling and for questions to people. They neither widen nor
/// enforce what a sandbox may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Execution {
    /// It can run several times safely.
    pub idempotent: bool,
    /// It changes or deletes what was there before.
    pub destructive: bool,
    /// It needs the network.
    pub network: bool,
    /// It needs somebody who answers it while it runs.
    pub interactive: bool,
    /// How long it may run at most.
    pub timeout: Option<Duration>,
}

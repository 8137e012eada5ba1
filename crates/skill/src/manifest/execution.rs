//! How a skill behaves when it runs.

use std::time::Duration;

/// What a skill's author says of its behaviour: hints for scheduling and for questions to people. They neither widen nor
/// enforce what a sandbox may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Execution {
    /// It can run several times safely.
    pub idempotent: bool,
    /// Whether it changes or deletes what was there before.
    pub destructive: Destructive,
    /// It needs the network.
    pub network: bool,
    /// It needs somebody who answers it while it runs.
    pub interactive: bool,
    /// How long it may run at most.
    pub timeout: Option<Duration>,
}

/// What an author says of whether a skill changes or deletes what was there before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Destructive {
    /// Nothing. It is not asked about, and not taken for harmless either.
    #[default]
    Unsaid,
    /// That it does not.
    No,
    /// That it does.
    Yes,
}

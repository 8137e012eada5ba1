//! Timeouts, idle policy and restart limits of a session's sandbox.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::supervision::{Backoff, Intensity};

/// The options of a session's sandbox.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ExecutorOptions {
    /// How long the start may take, including its preparation.
    pub start_timeout: Duration,
    /// How long the removal may take. After that a warning names what is left and the removal is given up: the session
    /// continues or ends, and another sandbox may be created in the same workspace.
    pub cleanup_timeout: Duration,
    /// The time without a call after which the sandbox is paused ([`Executor::pause`](conjure_sandbox::Executor::pause)). `None`:
    /// never.
    ///
    /// - Background processes use no processor during the pause. They keep their memory and their connections, which peers may
    ///   close.
    /// - The next call resumes everything first. Nothing is lost, and the model gets no notice.
    /// - A sandbox that cannot be paused keeps running.
    /// - A pause that is due no earlier than [`ExecutorOptions::unused_after`] never happens.
    pub pause_after: Option<Duration>,
    /// The time without a call after which the sandbox is stopped, paused or not. The workspace stays, and the next call has
    /// another sandbox created. A notice tells the model what was lost, such as background processes. `None`: the sandbox is
    /// stopped with its session.
    pub unused_after: Option<Duration>,
    /// The pauses between replacements.
    pub backoff: Backoff,
    /// The maximum number of replacements within a period. After that only the next call starts another one.
    pub intensity: Intensity,
    /// How many replacements in a row may fail to start. After that only the next call starts another one.
    pub attempts: NonZeroU32,
}

impl Default for ExecutorOptions {
    /// One minute to start and two to be removed; no pause; stopped with the session; up to 2 ms until the first
    /// replacement, doubling up to 5 s; 5 replacements in 30 s; 3 attempts.
    fn default() -> Self {
        Self {
            start_timeout: Duration::from_secs(60),
            cleanup_timeout: Duration::from_secs(120),
            pause_after: None,
            unused_after: None,
            backoff: Backoff::new(Duration::from_millis(2), Duration::from_secs(5), Duration::from_secs(60)),
            intensity: Intensity::new(5, Duration::from_secs(30)),
            attempts: NonZeroU32::MIN.saturating_add(2),
        }
    }
}

//! Timeouts, idle policy and restart limits of a session's sandbox.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::supervision::{Backoff, Intensity};

/// How a session's sandbox is treated.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ExecutorOptions {
    /// How long its start may take, preparation included.
    pub start_timeout: Duration,
    /// How long it may take until nothing of it is left. Then it is complained about by its names, and given up: the session
    /// goes on, or ends, and another may be made in the same workspace.
    pub cleanup_timeout: Duration,
    /// When it is paused because no call uses it ([`Executor::pause`](conjure_sandbox::Executor::pause)): what runs in the background
    /// uses no processor then, and stands still with its memory and its connections, which others may give up meanwhile. The next
    /// call has all go on before it begins; nothing is lost, and the model is told nothing. Nothing changes for sandboxes that cannot
    /// be paused. A pause that is due no earlier than [`ExecutorOptions::unused_after`] never comes. `None`: never.
    pub pause_after: Option<Duration>,
    /// When it is put away because no call used it, paused or not, long before its session is: the workspace stays, and the next call has another
    /// made. The model is told what went with it: what ran in the background, among others. `None`: when its session is.
    pub unused_after: Option<Duration>,
    /// How long it is waited before it is replaced again.
    pub backoff: Backoff,
    /// How many replacements are too many: then the next call asks for one, and nobody before.
    pub intensity: Intensity,
    /// After so many replacements in a row that did not start, it is left to the next call, too.
    pub attempts: NonZeroU32,
}

impl Default for ExecutorOptions {
    /// A minute to start, two to be cleared away, which it is with its session; never paused; at most 2 ms until the first replacement, doubling up to 5 s; 5 replacements in 30 s; 3 attempts.
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

//! The policies of a child: when it is restarted, how it is stopped, and whether its end matters to its supervisor.

use std::time::Duration;

use super::exit::ExitClass;

/// When a child that ended is restarted.
///
/// Only the variants of children that can end for good have a [`Significance`]. So a permanent child cannot be
/// significant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Always.
    Permanent,
    /// When it ended abnormally: killed, failed, panicked or not started.
    Transient(Significance),
    /// Never.
    Temporary(Significance),
}

/// Whether the final end of a child can stop its supervisor ([`crate::supervision::AutoShutdown`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Significance {
    /// It cannot stop its supervisor.
    Ordinary,
    /// It can stop its supervisor.
    Significant,
}

impl Restart {
    /// A transient child that is not significant.
    pub const TRANSIENT: Self = Self::Transient(Significance::Ordinary);

    /// A temporary child that is not significant.
    pub const TEMPORARY: Self = Self::Temporary(Significance::Ordinary);

    /// Whether a child that ended by itself with this exit is restarted.
    #[must_use]
    pub const fn wants(self, exit: ExitClass) -> bool {
        match self {
            Self::Permanent => true,
            Self::Transient(_) => exit.is_abnormal(),
            Self::Temporary(_) => false,
        }
    }

    pub(crate) const fn is_significant(self) -> bool {
        matches!(
            self,
            Self::Transient(Significance::Significant) | Self::Temporary(Significance::Significant)
        )
    }

    pub(crate) const fn is_temporary(self) -> bool {
        matches!(self, Self::Temporary(_))
    }
}

/// How a worker is stopped. A supervisor always gets [`Shutdown::Unlimited`], because a killed supervisor cannot stop
/// its children in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// It is killed at once, without being asked to stop.
    Kill,
    /// It is asked to stop, and killed if it has not stopped after this time.
    After(Duration),
    /// It is asked to stop, without a time limit.
    Unlimited,
}

impl Default for Shutdown {
    /// Five seconds, as in OTP.
    fn default() -> Self {
        Self::After(Self::DEFAULT_TIMEOUT)
    }
}

impl Shutdown {
    /// The default time to stop.
    pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

    /// The time limit for a worker that stops by itself.
    pub(crate) const fn timeout(self) -> Option<Duration> {
        match self {
            Self::Kill => Some(Self::DEFAULT_TIMEOUT),
            Self::After(time) => Some(time),
            Self::Unlimited => None,
        }
    }
}

/// The kind of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A worker.
    Worker,
    /// A supervisor.
    Supervisor,
}

/// How siblings depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// They are independent: only the failed child is restarted.
    OneForOne,
    /// Each child depends on all others: if one fails, all are stopped and restarted.
    OneForAll,
    /// Each child depends on those before it: if one fails, it and those after it are stopped and restarted.
    RestForOne,
}

/// Whether the final end of significant children stops their supervisor, with `shutdown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AutoShutdown {
    /// It does not stop the supervisor, and there are no significant children.
    Never,
    /// The end of the first significant child stops the supervisor.
    AnySignificant,
    /// The supervisor stops when all significant children have ended.
    AllSignificant,
}

/// The restart limit: how many restarts are allowed within a sliding period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Intensity {
    restarts: u32,
    period: Duration,
}

impl Intensity {
    /// Allows at most `restarts` in any span of `period`. With 0, the first restart exceeds the limit.
    #[must_use]
    pub const fn new(restarts: u32, period: Duration) -> Self {
        Self { restarts, period }
    }

    /// How many restarts are allowed.
    #[must_use]
    pub const fn restarts(self) -> u32 {
        self.restarts
    }

    /// The sliding period.
    #[must_use]
    pub const fn period(self) -> Duration {
        self.period
    }
}

impl Default for Intensity {
    /// 3 in 5 seconds, as in Elixir.
    fn default() -> Self {
        Self::new(3, Duration::from_secs(5))
    }
}

/// What a dynamic supervisor gives up when its children restart too often: itself or one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IntensityScope {
    /// Their restarts are counted together. The supervisor stops all of them and exits with `shutdown`.
    Shared,
    /// The restarts of each child are counted separately. Only that child is given up.
    PerChild,
}

/// What happens to a child that a dynamic supervisor gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnLimit {
    /// The child is kept in quarantine until a caller restarts or terminates it.
    #[default]
    Quarantine,
    /// The child is removed. A caller that wants it again must start it with its spec.
    Remove,
}

//! How a child is to be treated: when it is started again, how it is stopped, and what it means to its supervisor.

use std::time::Duration;

use super::exit::ExitClass;

/// When a child that ended is started again.
///
/// That a child is significant is said within, so that a permanent one, which never ends for good, cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Always.
    Permanent,
    /// When it ended abnormally: killed, failed, panicked or not started.
    Transient(Significance),
    /// Never.
    Temporary(Significance),
}

/// Whether the end of a child for good can end its supervisor ([`super::AutoShutdown`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Significance {
    /// It cannot.
    Ordinary,
    /// It can.
    Significant,
}

impl Restart {
    /// A transient child whose end means nothing to its supervisor.
    pub const TRANSIENT: Self = Self::Transient(Significance::Ordinary);

    /// A temporary child whose end means nothing to its supervisor.
    pub const TEMPORARY: Self = Self::Temporary(Significance::Ordinary);

    /// Whether a child that ended so by itself is to be started again.
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

/// How a worker is stopped. Supervisors have no choice: they get the time that their subtree needs, since a killed
/// supervisor could not stop its children in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Killed at once, at whatever it awaits; it is not asked first.
    Kill,
    /// Asked to stop, and killed when it has not after this time.
    After(Duration),
    /// Asked to stop, and waited for.
    Unlimited,
}

impl Default for Shutdown {
    /// Five seconds, as in OTP.
    fn default() -> Self {
        Self::After(Self::USUAL)
    }
}

impl Shutdown {
    /// What a worker has to stop when nothing else is said.
    pub(crate) const USUAL: Duration = Duration::from_secs(5);

    /// The time to end for a worker that goes by itself: nobody waits for ever for the last words of one that said it
    /// was done.
    pub(crate) const fn timeout(self) -> Option<Duration> {
        match self {
            Self::Kill => Some(Self::USUAL),
            Self::After(time) => Some(time),
            Self::Unlimited => None,
        }
    }
}

/// What a child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It does something.
    Worker,
    /// It has children.
    Supervisor,
}

/// In which order siblings depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// They do not: only the child that failed is started again.
    OneForOne,
    /// All depend on all: when one fails, all are stopped and started again.
    OneForAll,
    /// Each depends on those before it: when one fails, it and those after it are stopped and started again.
    RestForOne,
}

/// Whether the end of significant children for good ends their supervisor, with `shutdown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AutoShutdown {
    /// It does not, so it has no significant children.
    Never,
    /// The first of them does.
    AnySignificant,
    /// The last of them does.
    AllSignificant,
}

/// How many restarts are too many: more than `restarts` in any span of `period` is a meltdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Intensity {
    restarts: u32,
    period: Duration,
}

impl Intensity {
    /// At most `restarts` (0: the first one is too many) in any span of `period`.
    #[must_use]
    pub const fn new(restarts: u32, period: Duration) -> Self {
        Self { restarts, period }
    }

    /// How many restarts are still in order.
    #[must_use]
    pub const fn restarts(self) -> u32 {
        self.restarts
    }

    /// The span that slides over the restarts.
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

/// Who melts down when the restarts of a dynamic supervisor's children are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IntensityScope {
    /// Their restarts are counted together: the supervisor stops all of them and exits `shutdown`.
    Shared,
    /// The restarts of each are counted for it alone: it alone is given up and quarantined, and its siblings go on.
    PerChild,
}

/// What becomes of a child of a dynamic supervisor that is given up alone, as its failures are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnLimit {
    /// It is kept in quarantine, until somebody has it started again or terminates it.
    #[default]
    Quarantine,
    /// It is forgotten, as one that is done is: whoever wants it brings its spec anew.
    Remove,
}

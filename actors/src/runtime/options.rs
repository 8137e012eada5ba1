//! The options of a runtime and of a new session, and the health of a runtime.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, SessionId, SystemClock, TenantId};
use conjure_conversation::{Event, Message, SessionProfile};
use conjure_journal::LeaseOwner;

use crate::catalogs::RegistryOptions;
use crate::journal::OpenJournal;
use crate::maintenance::MaintenanceTask;
use crate::metrics::MetricsOptions;
use crate::session::{SessionFactory, SessionOptions};

/// The options of a runtime.
#[derive(Clone)]
pub struct TreeOptions {
    /// Opens the journal. Called again after the journal was lost.
    pub journal: Arc<OpenJournal>,
    /// How long a call waits while the journal is being opened.
    pub journal_timeout: Duration,
    /// Builds the components of sessions.
    pub session_factory: Arc<dyn SessionFactory>,
    /// The options of all sessions.
    pub sessions: SessionOptions,
    /// The options of the catalog registry.
    pub registry: RegistryOptions,
    /// How many partitions the tenants' supervisors are divided into.
    pub partitions: NonZeroUsize,
    /// Tasks that run periodically in the background.
    pub maintenance_tasks: Vec<Arc<dyn MaintenanceTask>>,
    /// The limits of metric labels.
    pub metrics: MetricsOptions,
    /// The clock that tells budgets the current day.
    pub clock: Arc<dyn Clock>,
    /// How long the start of the tree may take.
    pub start_timeout: Duration,
}

impl TreeOptions {
    /// The default options, with 30 seconds to start.
    #[must_use]
    pub fn new(
        journal: Arc<OpenJournal>,
        session_factory: Arc<dyn SessionFactory>,
        owner: LeaseOwner,
    ) -> Self {
        Self {
            journal,
            journal_timeout: Duration::from_secs(10),
            session_factory,
            sessions: SessionOptions::new(owner),
            registry: RegistryOptions::default(),
            partitions: NonZeroUsize::MIN.saturating_add(7),
            maintenance_tasks: Vec::new(),
            metrics: MetricsOptions::default(),
            clock: Arc::new(SystemClock),
            start_timeout: Duration::from_secs(30),
        }
    }
}

impl fmt::Debug for TreeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeOptions").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

/// A session to open.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// Its settings, recorded with its first event.
    pub profile: SessionProfile,
    /// A history from another system, with which the session starts.
    pub history: Vec<Message>,
    /// The events with which it starts, instead of a profile and a history: the events of a fork
    /// ([`fork_events`](conjure_conversation::fork_events)).
    pub events: Vec<Event>,
    /// Its id, which must be new; `None`: a random one.
    pub id: Option<SessionId>,
}

impl NewSession {
    /// A session of this tenant with the default profile.
    #[must_use]
    pub fn new(tenant: TenantId) -> Self {
        Self { tenant, profile: SessionProfile::default(), history: Vec::new(), events: Vec::new(), id: None }
    }

    /// Sets the profile.
    #[must_use]
    pub fn profile(mut self, profile: SessionProfile) -> Self {
        self.profile = profile;
        self
    }

    /// Sets the id, for an embedder that must know it before the session is opened.
    #[must_use]
    pub const fn id(mut self, id: SessionId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the first events, instead of a profile and a history.
    #[must_use]
    pub fn events(mut self, events: Vec<Event>) -> Self {
        self.events = events;
        self
    }

    /// Sets the history.
    #[must_use]
    pub fn history(mut self, messages: Vec<Message>) -> Self {
        self.history = messages;
        self
    }
}

/// Whether turns may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnAdmission {
    /// They may.
    Open,
    /// They may not: the runtime is draining.
    Draining,
}

/// The health of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Whether a journal is open.
    pub journal_is_open: bool,
    /// Whether turns may start.
    pub turn_admission: TurnAdmission,
    /// How many tenants have a supervisor: those with a session that is live or has a handle, or had one recently.
    pub tenants: usize,
    /// How many sessions are live.
    pub live_sessions: usize,
    /// How many sessions are live or have a handle.
    pub known_sessions: usize,
}

impl Health {
    /// Whether everything works.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.journal_is_open && matches!(self.turn_admission, TurnAdmission::Open)
    }
}

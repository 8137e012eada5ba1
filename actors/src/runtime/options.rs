//! What a runtime and a session are given, and what a runtime says of itself.

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

/// What a runtime is made of.
#[derive(Clone)]
pub struct TreeOptions {
    /// Opens the journal, also anew when it is lost.
    pub journal: Arc<OpenJournal>,
    /// How long a call waits while the journal is being opened.
    pub journal_timeout: Duration,
    /// Makes the parts of sessions.
    pub session_factory: Arc<dyn SessionFactory>,
    /// How sessions are treated.
    pub sessions: SessionOptions,
    /// How the registry of skills notices changes.
    pub registry: RegistryOptions,
    /// How many supervisors share the tenants.
    pub partitions: NonZeroUsize,
    /// How many sessions of a tenant may be live at a time; those that are put away do not count.
    pub sessions_per_tenant: usize,
    /// What is done again and again in the background.
    pub maintenance_tasks: Vec<Arc<dyn MaintenanceTask>>,
    /// How it is counted.
    pub metrics: MetricsOptions,
    /// By which tenants' budgets know what day it is.
    pub clock: Arc<dyn Clock>,
    /// How long the tree may take to start.
    pub start_timeout: Duration,
}

impl TreeOptions {
    /// Any number of sessions for each tenant, half a minute to start.
    #[must_use]
    pub fn new(journal: Arc<OpenJournal>, outfit: Arc<dyn SessionFactory>, owner: LeaseOwner) -> Self {
        Self {
            journal,
            journal_timeout: Duration::from_secs(10),
            session_factory: outfit,
            sessions: SessionOptions::new(owner),
            registry: RegistryOptions::default(),
            partitions: NonZeroUsize::MIN.saturating_add(7),
            sessions_per_tenant: usize::MAX,
            maintenance_tasks: Vec::new(),
            metrics: MetricsOptions::default(),
            clock: Arc::new(SystemClock),
            start_timeout: Duration::from_secs(30),
        }
    }
}

impl fmt::Debug for TreeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeOptions").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

/// A session that is to be opened.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    /// Whose it is.
    pub tenant: TenantId,
    /// What it is; recorded with its first event.
    pub profile: SessionProfile,
    /// A history from elsewhere, where it goes on with one.
    pub history: Vec<Message>,
    /// What is recorded of it from the start, instead of a profile and a history: the events of a fork
    /// ([`fork_events`](conjure_conversation::fork_events)).
    pub events: Vec<Event>,
    /// Its id, which nobody else has; `None`: a random one.
    pub id: Option<SessionId>,
}

impl NewSession {
    /// A session of this tenant with the default profile.
    #[must_use]
    pub fn new(tenant: TenantId) -> Self {
        Self { tenant, profile: SessionProfile::default(), history: Vec::new(), events: Vec::new(), id: None }
    }

    /// The same with this profile.
    #[must_use]
    pub fn profile(mut self, profile: SessionProfile) -> Self {
        self.profile = profile;
        self
    }

    /// The same with this id, for a host that must know it before.
    #[must_use]
    pub const fn id(mut self, id: SessionId) -> Self {
        self.id = Some(id);
        self
    }

    /// The same with these events, instead of a profile and a history.
    #[must_use]
    pub fn events(mut self, events: Vec<Event>) -> Self {
        self.events = events;
        self
    }

    /// The same with this history.
    #[must_use]
    pub fn history(mut self, messages: Vec<Message>) -> Self {
        self.history = messages;
        self
    }
}

/// Whether turns begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnAdmission {
    /// They do.
    Open,
    /// The runtime is being emptied.
    Draining,
}

/// How a runtime is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Whether a journal is open.
    pub journal_is_open: bool,
    /// Whether turns begin.
    pub turn_admission: TurnAdmission,
    /// How many tenants have a supervisor: those of which sessions are live or held by somebody, or were not long ago.
    pub tenants: usize,
    /// How many sessions are live.
    pub live_sessions: usize,
    /// How many sessions are live or held by somebody.
    pub known_sessions: usize,
}

impl Health {
    /// Whether it does all that it is for.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.journal_is_open && matches!(self.turn_admission, TurnAdmission::Open)
    }
}

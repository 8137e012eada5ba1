//! A snapshot of the live tree, for humans and for health checks.

use std::fmt;

use conjure_base::{Clock, SessionId, SystemClock, TenantId};

use crate::supervision::running::node::{Node, Status};
use crate::supervision::specs::exit::Exit;
use crate::supervision::specs::id::ChildId;
use crate::supervision::specs::policy::Kind;

/// The state of an actor at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ActorInfo {
    /// Its name among its siblings.
    pub id: ChildId,
    /// Its kind.
    pub kind: Kind,
    /// Its tenant.
    pub tenant: Option<TenantId>,
    /// Its session.
    pub session: Option<SessionId>,
    /// Its status.
    pub status: Status,
    /// The incarnation, from 1; 0 before the first.
    pub incarnation: u64,
    /// How often its supervisor restarted it.
    pub restarts: u64,
    /// How many messages wait for it.
    pub queue: usize,
    /// What it waits for. A worker sets the text itself. For a supervisor, the text comes from the states of its
    /// children.
    pub waiting_for: Option<String>,
    /// Its last exit.
    pub last_exit: Option<Exit>,
}

/// An actor and everything below it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ActorTree {
    /// The actor.
    pub actor: ActorInfo,
    /// Its children, in order.
    pub children: Vec<ActorTree>,
}

/// The number of a supervisor's children, by status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ChildCounts {
    /// All children.
    pub all: usize,
    /// The running children.
    pub running: usize,
    /// The children that are starting, or wait until earlier siblings have started.
    pub starting: usize,
    /// The children that are stopping.
    pub stopping: usize,
    /// The children that wait for their restart.
    pub restarting: usize,
    /// The finished children.
    pub finished: usize,
    /// The children in quarantine.
    pub quarantined: usize,
    /// How many of all children are supervisors.
    pub supervisors: usize,
}

impl ActorTree {
    pub(crate) fn of(node: &Node) -> Self {
        let children: Vec<Self> = node.children().iter().map(|child| Self::of(child)).collect();
        let mut actor = ActorInfo::of(node);
        if actor.waiting_for.is_none() {
            actor.waiting_for = children.iter().find_map(|child| child.actor.blocking_reason());
        }
        Self { actor, children }
    }

    /// The actor at this path of ids, relative to this actor. An empty path is this actor.
    #[must_use]
    pub fn find(&self, path: &[&str]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        self.children.iter().find(|child| child.actor.id.as_str() == *first)?.find(rest)
    }

    /// The number of actors, including this one.
    #[must_use]
    pub fn size(&self) -> usize {
        1 + self.children.iter().map(Self::size).sum::<usize>()
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        writeln!(f, "{:indent$}{}", "", self.actor, indent = depth * 2)?;
        self.children.iter().try_for_each(|child| child.write(f, depth + 1))
    }
}

impl ActorInfo {
    pub(crate) fn of(node: &Node) -> Self {
        let state = node.state().clone();
        Self {
            id: node.id.clone(),
            kind: node.kind,
            tenant: node.labels.tenant.clone(),
            session: node.labels.session,
            status: state.status,
            incarnation: state.incarnation,
            restarts: state.restarts,
            queue: node.gauge.waiting(),
            waiting_for: state.waiting_for.map(|what| what.into_owned()),
            last_exit: state.last_exit,
        }
    }

    /// Why this child blocks its supervisor.
    fn blocking_reason(&self) -> Option<String> {
        match self.status {
            Status::Starting => Some(format!("the start of `{}`", self.id)),
            Status::Stopping => Some(format!("the end of `{}`", self.id)),
            Status::Restarting { .. } => Some(format!("the restart of `{}`", self.id)),
            Status::Waiting | Status::Running | Status::Finished | Status::Quarantined => None,
        }
    }
}

impl ChildCounts {
    pub(crate) fn of(children: &[ActorInfo]) -> Self {
        let mut counts = Self { all: children.len(), ..Self::default() };
        for child in children {
            *match child.status {
                Status::Running => &mut counts.running,
                Status::Waiting | Status::Starting => &mut counts.starting,
                Status::Stopping => &mut counts.stopping,
                Status::Restarting { .. } => &mut counts.restarting,
                Status::Finished => &mut counts.finished,
                Status::Quarantined => &mut counts.quarantined,
            } += 1;
            counts.supervisors += usize::from(child.kind == Kind::Supervisor);
        }
        counts
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting"),
            Self::Starting => f.write_str("starting"),
            Self::Running => f.write_str("running"),
            Self::Stopping => f.write_str("stopping"),
            Self::Restarting { at } => write!(f, "restarting in {:?}", SystemClock.remaining(*at)),
            Self::Finished => f.write_str("finished"),
            Self::Quarantined => f.write_str("quarantined"),
        }
    }
}

impl fmt::Display for ActorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, self.status)?;
        if self.restarts > 0 {
            write!(f, ", restarts {}", self.restarts)?;
        }
        if self.queue > 0 {
            write!(f, ", queue {}", self.queue)?;
        }
        if let Some(what) = &self.waiting_for {
            write!(f, ", waits for {what}")?;
        }
        if let Some(exit) = &self.last_exit {
            write!(f, ", last exit {exit}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ActorTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

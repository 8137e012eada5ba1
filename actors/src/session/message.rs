//! All that a session understands. The methods of [`super::Session`] are sugar for these.

use std::sync::Arc;

use conjure_artifact::{OutputContent, RegistrationSource};
use conjure_base::{CallId, TurnId};
use conjure_conversation::{
    Approval, Artifact, ArtifactChange, Block, Decision, FinishedTurn, Grant, Limits, PinnedSkill, QueueId,
    SessionFile, Usage,
};
use conjure_sandbox::{Executor, Listing};

use super::error::SessionError;
use super::subscription::{Accepted, Subscription};
use crate::artifacts::ArtifactRequest;
use crate::supervision::Reply;

/// An answer of a session.
pub type ReplyTo<T> = Reply<Result<T, SessionError>>;

/// A message to a session. What changes the conversation is answered when that is recorded.
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionRequest {
    /// The user says something: it is a turn, now, or after those before it.
    Send {
        /// What.
        input: Vec<Block>,
        /// What its turn may consume, also where it waits in the queue before; those of the session's profile where none are
        /// given.
        limits: Option<Limits>,
        /// Told where it is recorded.
        reply: ReplyTo<Accepted>,
    },
    /// The user adds something to the turn that runs.
    Steer {
        /// What.
        input: Vec<Block>,
        /// Told at which sequence number it is recorded.
        reply: ReplyTo<u64>,
    },
    /// The user takes back what was queued.
    Unqueue {
        /// Which.
        id: QueueId,
        /// Told when it is recorded.
        reply: ReplyTo<()>,
    },
    /// The turn that runs, or waits for a person, ends. What is queued is not touched.
    Interrupt {
        /// Told when the end is recorded; at once when no turn runs.
        reply: ReplyTo<()>,
    },
    /// A person decides on a tool call.
    Decide {
        /// Which call.
        call: CallId,
        /// What.
        decision: Decision,
        /// Told when it is recorded.
        reply: ReplyTo<()>,
    },
    /// The session uses another model from its next turn on.
    SetModel {
        /// The name of the model.
        model: String,
        /// Told when it is recorded.
        reply: ReplyTo<()>,
    },
    /// Somebody listens from this event on.
    Subscribe {
        /// The first event that is told.
        from_seq: u64,
        /// Given the subscription.
        reply: ReplyTo<Subscription>,
    },
    /// Somebody asks for all that lies in the session's workspace.
    ListFiles {
        /// Given the listing.
        reply: ReplyTo<Listing>,
    },
    /// Somebody asks for the files that its turns produced.
    Files {
        /// Given them, by where they lie.
        reply: ReplyTo<Vec<SessionFile>>,
    },
    /// Somebody wants to read one of them.
    OpenFile {
        /// Which.
        file: Box<SessionFile>,
        /// Given its bytes.
        reply: ReplyTo<OutputContent>,
    },
    /// Somebody wants the bytes of one of them for another session of the tenant.
    StoreFile {
        /// Which.
        file: Box<SessionFile>,
        /// Given the source of an artifact.
        reply: ReplyTo<RegistrationSource>,
    },
    /// Somebody asks for the session's artifacts.
    ListArtifacts {
        /// Given them.
        reply: ReplyTo<Arc<[Arc<Artifact>]>>,
    },
    /// The session's artifacts change.
    ChangeArtifacts {
        /// How.
        change: ArtifactChange,
        /// Told when it is recorded.
        reply: ReplyTo<()>,
    },
    /// Something is asked of its artifacts that takes longer.
    Artifacts(ArtifactRequest),
    /// Somebody asks for what its tools run in.
    Executor {
        /// Given it.
        reply: ReplyTo<Arc<dyn Executor>>,
    },
    /// Somebody asks how far the session is.
    Snapshot {
        /// Told so.
        reply: ReplyTo<SessionSnapshot>,
    },
    /// The session is to be put away: when its turn is over it stops, and the next message revives it.
    Close {
        /// Told when it is about to stop.
        reply: ReplyTo<()>,
    },
}

/// How far a session is.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SessionSnapshot {
    /// How many events are recorded.
    pub events: u64,
    /// What it does.
    pub status: SessionStatus,
    /// The calls that wait for a person.
    pub approvals: Vec<Approval>,
    /// The active skills, the most recent last.
    pub active_skills: Vec<PinnedSkill>,
    /// What was granted for longer than one call, and holds.
    pub grants: Vec<Grant>,
    /// What waits for its turn.
    pub queue: Vec<QueueId>,
    /// How the last turn ended.
    pub last_turn: Option<FinishedTurn>,
    /// What all its model calls consumed, as far as their turns are over.
    pub usage: Usage,
    /// The text of the last answer.
    pub last_text: String,
    /// The name of its model; `None`: it names none.
    pub model: Option<String>,
}

/// What a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStatus {
    /// Nothing.
    Idle,
    /// A turn runs.
    Running(TurnId),
    /// A turn waits for a person.
    AwaitingApproval(TurnId),
    /// A turn was running when the session's owner ended, and is driven on once somebody attaches.
    Interrupted(TurnId),
}

//! The requests to a session. The methods of [`super::Session`] send these.

use std::sync::Arc;

use conjure_artifact::{OutputContent, RegistrationSource};
use conjure_base::TurnId;
use conjure_conversation::{
    Approval, Artifact, Block, CommandKind, FinishedTurn, Grant, Limits, PendingAction, PinnedSkill, QueueId,
    SessionFile, Usage,
};
use conjure_sandbox::{Executor, Listing};

use super::error::ReplyTo;
use super::subscription::Subscription;
use super::turn_handle::Accepted;
use crate::artifacts::ArtifactRequest;

/// A request to a session. A request that changes the conversation is answered when the change is recorded.
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionRequest {
    /// Sends a message of the user. It starts a turn, now or after the turns before it.
    Send {
        /// The content of the message.
        input: Vec<Block>,
        /// The limits of the turn, also if the message is queued first; `None`: the limits of the session's profile.
        limits: Option<Limits>,
        /// Answered when the message is recorded.
        reply: ReplyTo<Accepted>,
    },
    /// Adds a message of the user to the running turn.
    Steer {
        /// The content of the message.
        input: Vec<Block>,
        /// Answered with the sequence number of the recorded message.
        reply: ReplyTo<u64>,
    },
    /// Ends the turn that runs or waits for a person. Queued messages stay.
    Interrupt {
        /// Answered when the end is recorded; at once if no turn runs.
        reply: ReplyTo<()>,
    },
    /// Gives the state machine a command: a decision, result or answers for a call that waits for them, or a change of the settings, the
    /// queue or the artifacts.
    Submit {
        /// The command.
        command: CommandKind,
        /// Answered when what it does is recorded.
        reply: ReplyTo<()>,
    },
    /// Changes the session's model, from its next turn on.
    SetModel {
        /// The name of the model.
        model: String,
        /// Answered when the change is recorded.
        reply: ReplyTo<()>,
    },
    /// Subscribes to the session's events.
    Subscribe {
        /// The first event of the subscription.
        from_seq: u64,
        /// Answered with the subscription.
        reply: ReplyTo<Subscription>,
    },
    /// Lists all files in the session's workspace.
    ListFiles {
        /// Answered with the listing.
        reply: ReplyTo<Listing>,
    },
    /// Lists the files that the session's turns produced.
    Files {
        /// Answered with the files, grouped by their store.
        reply: ReplyTo<Vec<SessionFile>>,
    },
    /// Opens a produced file.
    OpenFile {
        /// The file.
        file: Box<SessionFile>,
        /// Answered with its content.
        reply: ReplyTo<OutputContent>,
    },
    /// Makes a produced file the source of an artifact for another session of the tenant.
    StoreFile {
        /// The file.
        file: Box<SessionFile>,
        /// Answered with the source.
        reply: ReplyTo<RegistrationSource>,
    },
    /// Lists the session's artifacts.
    ListArtifacts {
        /// Answered with the artifacts.
        reply: ReplyTo<Arc<[Arc<Artifact>]>>,
    },
    /// A slow request about artifacts, which the session's registry of artifacts handles.
    Artifacts(ArtifactRequest),
    /// Asks for the executor of the session's tools.
    Executor {
        /// Answered with the executor.
        reply: ReplyTo<Arc<dyn Executor>>,
    },
    /// Asks for the session's current state.
    Snapshot {
        /// Answered with the state.
        reply: ReplyTo<SessionSnapshot>,
    },
    /// Passivates the session: it stops when its turn is over, and the next message revives it.
    Close {
        /// Answered when the session is about to stop.
        reply: ReplyTo<()>,
    },
}

/// The state of a session.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct SessionSnapshot {
    /// The number of recorded events.
    pub events: u64,
    /// What the session does now.
    pub status: SessionStatus,
    /// The calls that wait for an approval.
    pub approvals: Vec<Approval>,
    /// The calls that wait for an approval or a result, in order.
    pub pending_actions: Vec<PendingAction>,
    /// The active skills, the most recent last.
    pub active_skills: Vec<PinnedSkill>,
    /// The grants for more than one call that hold now.
    pub grants: Vec<Grant>,
    /// The queued messages.
    pub queue: Vec<QueueId>,
    /// The end of the last turn.
    pub last_turn: Option<FinishedTurn>,
    /// The usage of all model calls in turns that have ended.
    pub usage: Usage,
    /// The text of the last response.
    pub last_text: String,
    /// The name of the session's model; `None`: the default model.
    pub model: Option<String>,
}

/// What a session does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionStatus {
    /// It does nothing.
    #[default]
    Idle,
    /// This turn runs.
    Running(TurnId),
    /// This turn waits for an approval or a result.
    AwaitingApproval(TurnId),
    /// This turn was running when the session's actor ended. It continues when a handle attaches, or when the actor
    /// starts, as the option `resume` says.
    Interrupted(TurnId),
}

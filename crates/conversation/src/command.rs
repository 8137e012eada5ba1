//! What may be asked of the machine, and why it may refuse.

use conjure_base::{CallId, ContainerId, Timestamp, TurnId};

use crate::artifact::{Artifact, ArtifactName, FetchedArtifact, UploadedArtifact};
use crate::compaction::CompactionPolicy;
use crate::content::Block;
use crate::event::{Decision, ToolOutcome};
use crate::files::{Completeness, SessionFile};
use crate::limits::Limits;
use crate::message::Message;
use crate::model::{CallEffects, ModelError, Response};
use crate::pairing::PairingError;
use crate::profile::Profile;
use crate::queue::QueueId;
use crate::summary::Summary;
use crate::tool::ToolResult;

/// Something asked of the machine, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// When it was asked; recorded with the events that follow.
    pub at: Timestamp,
    /// What.
    pub kind: CommandKind,
}

/// What may be asked. Outcomes name the turn and the call that they belong to, so that late ones are dropped.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CommandKind {
    /// Say what the session is. Only the first command of a session may be this.
    Open {
        /// What it is.
        profile: Box<Profile>,
    },
    /// Begin with a history from elsewhere. Only a session without one may do this. When it ends with
    /// the assistant's words, a turn without input resumes them like a pause; one with input goes on after them.
    Import {
        /// The messages; valid as [`crate::pairing::check_history`] says.
        messages: Vec<Message>,
        /// The container that the service's tools ran in, to be used again.
        container: Option<ContainerId>,
    },
    /// Begin a turn.
    StartTurn {
        /// What the user says. May be empty when the last message awaits an answer: then that is tried again.
        input: Vec<Block>,
        /// What the turn may consume.
        limits: Limits,
    },
    /// The model is about to be called. When a limit forbids it, the turn ends instead.
    StartModelCall {
        /// Whether the call may do something where nobody here sees it: what [`Model::effects`](crate::Model::effects) says of it.
        effects: CallEffects,
    },
    /// The model answered.
    AcceptAnswer {
        /// Which turn.
        turn: TurnId,
        /// Which call of it.
        call: u32,
        /// The whole answer.
        response: Box<Response>,
    },
    /// The model call failed, so the turn ends.
    FailModelCall {
        /// Which turn.
        turn: TurnId,
        /// Which call of it.
        call: u32,
        /// Why.
        error: ModelError,
    },
    /// The model call failed because of one block of the history: replace it, so that the call is due again.
    RejectBlock {
        /// Which turn.
        turn: TurnId,
        /// Which call of it.
        call: u32,
        /// Why.
        error: ModelError,
        /// The message's place in the request, from 0.
        message: usize,
        /// The block's place in the message, from 0.
        block: usize,
    },
    /// The beginning of the history is about to be summarised. When a limit forbids the model call that is to follow, the turn ends
    /// instead.
    StartCompaction {
        /// When that is due, and what stays.
        policy: CompactionPolicy,
    },
    /// The summary is there. It takes the place of what it summarises, unless it is no smaller.
    Compact {
        /// Which turn.
        turn: TurnId,
        /// Which compaction of it.
        compaction: u32,
        /// The summary.
        summary: Summary,
        /// What must be said again behind it ([`crate::Composer::preserved`]).
        preserved: Option<String>,
    },
    /// There is no summary. The turn goes on with the history as it is.
    FailCompaction {
        /// Which turn.
        turn: TurnId,
        /// Which compaction of it.
        compaction: u32,
        /// Why.
        error: ModelError,
    },
    /// A person must decide on this call before it runs.
    RequestApproval {
        /// Which call.
        call: CallId,
        /// What the person is asked.
        reason: String,
    },
    /// A person decided.
    Decide {
        /// Which call.
        call: CallId,
        /// What.
        decision: Decision,
    },
    /// Policy denies this call.
    DenyTool {
        /// Which call.
        call: CallId,
        /// Why; the model reads it.
        reason: String,
    },
    /// These calls are about to run.
    StartTools {
        /// Which.
        calls: Vec<StartedCall>,
    },
    /// A call has its result.
    FinishTool {
        /// What the model is told.
        result: ToolResult,
        /// How it came to be.
        outcome: ToolOutcome,
    },
    /// The user adds something while the turn runs. It reaches the model after the next results.
    Steer {
        /// What.
        input: Vec<Block>,
    },
    /// The user says something that is to be a turn of its own, after those before it; also while no turn runs.
    Queue {
        /// What.
        input: Vec<Block>,
        /// What its turn may consume, where that was said.
        limits: Option<Limits>,
    },
    /// Begin a turn with what waits first in the queue.
    StartQueued {
        /// What the turn may consume, where what waits does not say so itself.
        limits: Limits,
    },
    /// Take back what was queued.
    Unqueue {
        /// Which.
        id: QueueId,
    },
    /// End the turn now. Calls that run get the result "outcome unknown": finish them first when it is known.
    Interrupt {
        /// Why.
        cause: InterruptCause,
    },
    /// Whoever drove this session is gone; what was under way is over.
    Recover,
    /// The session is given an artifact, also while a turn runs.
    RegisterArtifact {
        /// Which. Its variable is the machine's to give.
        artifact: Box<Artifact>,
    },
    /// The session does not have an artifact any more.
    UnregisterArtifact {
        /// Which.
        name: ArtifactName,
    },
    /// The session does not have any artifact any more.
    ClearArtifacts,
    /// An artifact's URL was fetched, otherwise than by a tool call.
    FetchArtifact {
        /// What it led to.
        fetched: Box<FetchedArtifact>,
    },
    /// The service has an artifact: it is put into the container of the turn that has begun, before the model is called.
    AttachUpload {
        /// Which, and how.
        uploaded: Box<UploadedArtifact>,
    },
    /// It is known what files a turn created or changed. Said once for each turn, behind its end.
    ProduceFiles {
        /// Which turn.
        turn: TurnId,
        /// Which files.
        files: Vec<SessionFile>,
        /// Whether these are all.
        completeness: Completeness,
    },
}

/// A call that is about to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedCall {
    /// Which.
    pub call: CallId,
    /// Whether running it twice does what running it once does.
    pub idempotent: bool,
}

/// Why a turn is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterruptCause {
    /// Somebody asked for it.
    Cancelled,
    /// The deadline of the run passed.
    Deadline,
    /// [`Limits::wall_clock`] was reached.
    WallClock,
}

/// Why the machine refused a command. The state is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// A turn is running.
    #[error("a turn is running; wait for its end, steer it or interrupt it")]
    TurnRunning,
    /// No turn is running.
    #[error("no turn is running")]
    NoTurn,
    /// There is nothing to send.
    #[error("the input holds no text and no other content")]
    EmptyInput,
    /// The user's input holds a block that only the model or a tool may produce.
    #[error("the input holds a `{kind}` block, which only the model or a tool may produce")]
    ForeignBlock {
        /// The block's type.
        kind: String,
    },
    /// The session has begun already.
    #[error("a session can only be opened once, before anything else")]
    AlreadyBegun,
    /// As many inputs wait for their turn as may.
    #[error("{limit} messages wait for their turn, as many as may; wait for a turn's end, or take one back")]
    QueueFull {
        /// How many.
        limit: usize,
    },
    /// Nothing waits for its turn.
    #[error("no message waits for its turn")]
    QueueEmpty,
    /// Nothing of this id waits: it was never queued, was taken back, or has had its turn.
    #[error("the message {id} does not wait in the queue")]
    NotQueued {
        /// The id.
        id: QueueId,
    },
    /// Another history is there already.
    #[error("a history can only be imported into a session that has none")]
    HistoryPresent,
    /// The imported history is not valid.
    #[error("the history is not valid: {0}")]
    InvalidHistory(#[from] PairingError),
    /// The model call is not the one under way; its outcome comes too late.
    #[error("no such model call is under way")]
    StaleModelCall,
    /// The model may not be called now.
    #[error("no model call is due")]
    ModelCallNotDue,
    /// The history is not long enough, is too short to be cut, has not grown since the last attempt, or no model call is due.
    #[error("no compaction is due")]
    CompactionNotDue,
    /// No open call has this id: it is unknown, or has its result already.
    #[error("no open tool call `{call}`")]
    NoOpenCall {
        /// The id.
        call: CallId,
    },
    /// The call is in a state that does not allow this.
    #[error("the tool call `{call}` is {status}")]
    WrongStatus {
        /// The id.
        call: CallId,
        /// Its state.
        status: &'static str,
    },
    /// The session has an artifact of this name.
    #[error("the session has an artifact `{name}` already; unregister it first, or take another name")]
    ArtifactExists {
        /// The name.
        name: ArtifactName,
    },
    /// The session has no artifact of this name.
    #[error("the session has no artifact `{name}`")]
    NoArtifact {
        /// The name.
        name: ArtifactName,
    },
    /// The session has as many artifacts as it may.
    #[error("the session has {limit} artifacts, as many as it may; unregister one first")]
    TooManyArtifacts {
        /// How many.
        limit: usize,
    },
    /// The files are not those of the last turn, or were recorded before.
    #[error("the files of turn {turn} are not awaited")]
    FilesNotDue {
        /// The turn.
        turn: TurnId,
    },
    /// The block is not there, was replaced before, or is a tool call, which cannot be replaced.
    #[error("block {block} of message {message} cannot be replaced")]
    NotReplaceable {
        /// The message's place.
        message: usize,
        /// The block's place.
        block: usize,
    },
}

/// What the artifacts of a session become: a command that may be given at any time, also while a turn runs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ArtifactChange {
    /// It is given this one.
    Register(Box<Artifact>),
    /// It does not have this one any more.
    Unregister(ArtifactName),
    /// It does not have any.
    Clear,
    /// The URL of one was fetched.
    Fetch(Box<FetchedArtifact>),
}

impl From<ArtifactChange> for CommandKind {
    fn from(change: ArtifactChange) -> Self {
        match change {
            ArtifactChange::Register(artifact) => Self::RegisterArtifact { artifact },
            ArtifactChange::Unregister(name) => Self::UnregisterArtifact { name },
            ArtifactChange::Clear => Self::ClearArtifacts,
            ArtifactChange::Fetch(fetched) => Self::FetchArtifact { fetched },
        }
    }
}

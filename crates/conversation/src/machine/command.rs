//! The commands to the state machine, and the reasons for which it rejects them.

use conjure_base::{CallId, ContainerId, Timestamp, TurnId};

use crate::compaction::CompactionPolicy;
use crate::content::block::Block;
use crate::content::message::Message;
use crate::content::pairing::PairingError;
use crate::events::call_outcome::{CallOutcome, Decision, ResultFrom};
use crate::model::{ModelError, Response, SideEffects};
use crate::session::artifact::{Artifact, ArtifactName, FetchedArtifact, UploadedArtifact};
use crate::session::hosted::HostedSupport;
use crate::session::profile_change::ProfileChange;
use crate::session::queue::QueueId;
use crate::session::session_file::{Completeness, SessionFile};
use crate::session::session_profile::SessionProfile;
use crate::state::limits::Limits;
use crate::summary::Summary;
use crate::tools::input_request::{InputAnswers, InputRequest};
use crate::tools::tool::{ResultContent, ToolResult};
use crate::tools::tool_server::ToolServerFailure;

/// A command with its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// When it was given. The events that follow record this time.
    pub at: Timestamp,
    /// The kind of the command.
    pub kind: CommandKind,
}

/// The commands. Outcomes name their turn and their call, so that late ones are rejected.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CommandKind {
    /// Open the session with its settings. It must be the first command of a session.
    Open {
        /// The settings.
        profile: Box<SessionProfile>,
    },
    /// Import a history. The session must not have one. If the history ends with an assistant message, a turn without input resumes it like
    /// a pause, and a turn with input continues after it.
    Import {
        /// The messages; they must pass [`crate::content::pairing::check_history`].
        messages: Vec<Message>,
        /// The container that the service's tools ran in, to be used again.
        container: Option<ContainerId>,
    },
    /// Use another model from the next turn on. No turn may be running.
    SetModel {
        /// Its name in the embedder's configuration.
        model: String,
        /// Whether its service runs hosted skills.
        hosted: HostedSupport,
    },
    /// Change the session's settings. The tools and the prompt cannot change while a turn runs.
    UpdateProfile {
        /// The changed settings.
        change: Box<ProfileChange>,
    },
    /// Start a turn.
    StartTurn {
        /// The user's input. It may be empty when the last message has no response yet: then the turn tries again.
        input: Vec<Block>,
        /// The limits of the turn.
        limits: Limits,
    },
    /// Start a model call. When a limit forbids it, the turn ends instead.
    StartModelCall {
        /// The possible side effects of the call ([`Model::side_effects`](crate::Model::side_effects)).
        effects: SideEffects,
    },
    /// Accept the model's response.
    AcceptResponse {
        /// The id of the turn.
        turn: TurnId,
        /// The number of the call in its turn, from 1.
        call: u32,
        /// The complete response.
        response: Box<Response>,
    },
    /// End a model call that failed. The turn ends with it.
    FailModelCall {
        /// The id of the turn.
        turn: TurnId,
        /// The number of the call in its turn, from 1.
        call: u32,
        /// The error.
        error: ModelError,
    },
    /// End a model call that failed because of one block. The block is replaced, so that the call can be repeated.
    RejectBlock {
        /// The id of the turn.
        turn: TurnId,
        /// The number of the call in its turn, from 1.
        call: u32,
        /// The error.
        error: ModelError,
        /// The index of the message in the request, from 0.
        message: usize,
        /// The index of the block in the message, from 0.
        block: usize,
    },
    /// Start a compaction. When a limit forbids the model call that would follow, the turn ends instead.
    StartCompaction {
        /// The policy.
        policy: CompactionPolicy,
    },
    /// End a compaction with a summary. It replaces the summarised messages, unless it is not smaller.
    Compact {
        /// The id of the turn.
        turn: TurnId,
        /// The number of the compaction in its turn, from 1.
        compaction: u32,
        /// The summary.
        summary: Summary,
        /// The text that follows it ([`crate::Composer::after_compaction`]).
        preserved: Option<String>,
    },
    /// End a compaction that failed. The turn continues with the unchanged history.
    FailCompaction {
        /// The id of the turn.
        turn: TurnId,
        /// The number of the compaction in its turn, from 1.
        compaction: u32,
        /// The error.
        error: ModelError,
    },
    /// Request an approval for this call.
    RequestApproval {
        /// The id of the call.
        call: CallId,
        /// The question to the approver.
        reason: String,
    },
    /// Record an approver's decision. The same decision may be given again.
    Decide {
        /// The id of the call.
        call: CallId,
        /// The decision.
        decision: Decision,
    },
    /// Request the result of this call from outside.
    RequestResult {
        /// The id of the call.
        call: CallId,
        /// Who provides it.
        from: ResultFrom,
        /// The time at which the call ends with an error if its result was not provided; `None`: never.
        deadline: Option<Timestamp>,
    },
    /// Provide the result of a call that waits for it. The same result may be provided again.
    ProvideResult {
        /// The id of the call.
        call: CallId,
        /// The content for the model.
        content: Vec<ResultContent>,
        /// Whether the call failed.
        is_error: bool,
    },
    /// End the run of this call with questions to a person. A call that asks too often ends with an error.
    RequireInput {
        /// The id of the call.
        call: CallId,
        /// The questions.
        request: Box<InputRequest>,
    },
    /// Answer the questions of a call that waits for input. The same answers may be given again.
    ProvideInput {
        /// The id of the call.
        call: CallId,
        /// The number of the round, from 1 ([`ActionNeed::Input`](crate::ActionNeed::Input)).
        round: u32,
        /// The answers. A question without one counts as cancelled.
        answers: InputAnswers,
    },
    /// Park the turn: nothing more of the response can run until an action from outside.
    AwaitAction,
    /// Deny this call by policy.
    DenyTool {
        /// The id of the call.
        call: CallId,
        /// Why. The model reads it.
        reason: String,
    },
    /// Start these calls.
    StartTools {
        /// The calls.
        calls: Vec<StartedCall>,
    },
    /// Finish a call with its result.
    FinishTool {
        /// The result.
        result: ToolResult,
        /// How the call ended.
        outcome: CallOutcome,
    },
    /// Add input of the user to the running turn. The model reads it after the next results.
    Steer {
        /// The input.
        input: Vec<Block>,
    },
    /// Record which tool servers could not be queried. The model reads that before its next response.
    ReportToolServers {
        /// The servers, and the reasons.
        failures: Vec<ToolServerFailure>,
    },
    /// Queue input for a turn of its own. It may be given at any time.
    Queue {
        /// The input.
        input: Vec<Block>,
        /// The limits of its turn, if the sender set any.
        limits: Option<Limits>,
    },
    /// Start a turn with the first input in the queue.
    StartQueued {
        /// The limits of the turn, if the queued input has none.
        limits: Limits,
    },
    /// Remove an input from the queue.
    Unqueue {
        /// The id of the input.
        id: QueueId,
    },
    /// End the turn now. Running calls get the result "outcome unknown"; finish those with a known outcome before.
    Interrupt {
        /// The cause.
        cause: InterruptCause,
    },
    /// Recover after the session's driver has ended: close what it left unfinished. It also ends the calls whose results were not
    /// provided in time.
    Recover,
    /// Register an artifact. It may be given at any time.
    RegisterArtifact {
        /// The artifact. The state machine chooses its variable.
        artifact: Box<Artifact>,
    },
    /// Remove an artifact.
    UnregisterArtifact {
        /// The name of the artifact.
        name: ArtifactName,
    },
    /// Remove all artifacts.
    ClearArtifacts,
    /// Record that an artifact's URL was fetched, not by a tool call.
    FetchArtifact {
        /// The fetched content.
        fetched: Box<FetchedArtifact>,
    },
    /// Attach an artifact that was uploaded to the service to the running turn, before a model call.
    AttachUpload {
        /// The upload.
        uploaded: Box<UploadedArtifact>,
    },
    /// Record the files that a turn created or changed. It is given once for each turn, after its end.
    ProduceFiles {
        /// The id of the turn.
        turn: TurnId,
        /// The files.
        files: Vec<SessionFile>,
        /// Whether the list is complete.
        completeness: Completeness,
    },
}

/// A call that starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedCall {
    /// The id of the call.
    pub call: CallId,
    /// Whether the call can be repeated without a further effect.
    pub idempotent: bool,
}

/// Why a turn is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterruptCause {
    /// It was cancelled.
    Cancelled,
    /// The deadline of the run passed.
    Deadline,
    /// [`Limits::wall_clock`] was reached.
    WallClock,
}

/// Why the state machine rejected a command. The state is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// A turn is running.
    #[error("a turn is running; wait for its end, steer it or interrupt it")]
    TurnRunning,
    /// No turn is running.
    #[error("no turn is running")]
    NoTurn,
    /// The input is empty.
    #[error("the input has no text and no other content")]
    EmptyInput,
    /// The user's input holds a block that only the model or a tool may produce.
    #[error("the input has a `{kind}` block, which only the model or a tool may produce")]
    ForeignBlock {
        /// The block's type.
        kind: String,
    },
    /// The session was opened before.
    #[error("a session can only be opened once, before anything else")]
    AlreadyOpened,
    /// The queue is full.
    #[error("the queue is full with {limit} messages; wait for a turn's end, or remove a message")]
    QueueFull {
        /// The maximum number of queued messages.
        limit: usize,
    },
    /// The queue is empty.
    #[error("no message waits in the queue")]
    QueueEmpty,
    /// The queue has no such id: it was never queued, was removed, or its turn has started.
    #[error("the message {id} is not in the queue")]
    NotQueued {
        /// The id.
        id: QueueId,
    },
    /// The session has a history already.
    #[error("a history can only be imported into a session that has none")]
    HistoryPresent,
    /// The imported history is not valid.
    #[error("the history is not valid: {0}")]
    InvalidHistory(#[from] PairingError),
    /// The model call is not the running one; its outcome is late.
    #[error("no such model call is running")]
    StaleModelCall,
    /// The model may not be called now.
    #[error("no model call is due")]
    ModelCallNotDue,
    /// The session has hosted skills, and the model's service does not run any.
    #[error("the session has hosted skills, which the service of the model `{model}` does not run")]
    NotHosting {
        /// The model.
        model: String,
    },
    /// The history is too small, cannot be cut, has not grown since the last attempt, or no model call is due.
    #[error("no compaction is due")]
    CompactionNotDue,
    /// No open call has this id: it is unknown, or has its result.
    #[error("no open tool call `{call}`")]
    NoOpenCall {
        /// The id.
        call: CallId,
    },
    /// The call's status does not allow this.
    #[error("the tool call `{call}` is {status}")]
    WrongStatus {
        /// The id.
        call: CallId,
        /// Its status.
        status: &'static str,
    },
    /// The call already has another decision, result or input.
    #[error("the tool call `{call}` was answered already, with another answer")]
    AnsweredDifferently {
        /// The id.
        call: CallId,
    },
    /// An answer names a question that the call does not ask.
    #[error("the tool call `{call}` does not ask all of these questions; it asks: {asked}")]
    UnknownQuestion {
        /// The id of the call.
        call: CallId,
        /// The ids of its questions.
        asked: String,
    },
    /// No call waits for an approval or a result, or a call of the response is running.
    #[error("no tool call waits for an action from outside")]
    NothingAwaited,
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
    /// The session has the maximum number of artifacts.
    #[error("the session has {limit} artifacts, the most that it may have; unregister one first")]
    TooManyArtifacts {
        /// The maximum number of artifacts.
        limit: usize,
    },
    /// The files are not those of the last turn, or were recorded before.
    #[error(
        "the files of turn {turn} cannot be recorded: it is not the last turn, or they were recorded before"
    )]
    FilesNotDue {
        /// The turn.
        turn: TurnId,
    },
    /// The block does not exist, was replaced before, or is a tool call, which cannot be replaced.
    #[error("block {block} of message {message} cannot be replaced")]
    NotReplaceable {
        /// The index of the message.
        message: usize,
        /// The index of the block.
        block: usize,
    },
}

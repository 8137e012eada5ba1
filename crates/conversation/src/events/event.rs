//! The recorded events of a session. They are versioned, and the state is rebuilt from them alone.
//!
//! One event is one JSON object `{"version":1,"at":MILLISECONDS,"event":{"KIND":{...}}}`. Message content stays raw in it. The enums are
//! externally tagged, because any other form buffers and would reformat numbers.

use conjure_base::{CallId, ContainerId, SessionId, Timestamp, TurnId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::compaction::CompactionError;
use crate::content::block::Block;
use crate::content::message::Message;
use crate::events::call_outcome::{CallOutcome, Decision, ResultFrom};
use crate::events::turn_stop::TurnStop;
use crate::model::Usage;
use crate::model::{ModelError, Response, SideEffects};
use crate::session::artifact::{Artifact, ArtifactName, FetchedArtifact, UploadedArtifact};
use crate::session::profile_change::ProfileChange;
use crate::session::queue::QueueId;
use crate::session::session_file::{Completeness, SessionFile};
use crate::session::session_profile::SessionProfile;
use crate::state::limits::Limits;
use crate::tools::input_request::{InputAnswers, InputRequest};
use crate::tools::tool::ToolResult;
use crate::tools::tool_server::ToolServerFailure;

/// The version of the event format that this library writes. It reads this version and all older ones.
pub const EVENT_FORMAT: u32 = 1;

/// A recorded event with its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When it happened, by the wall clock of the process that recorded it.
    pub at: Timestamp,
    /// What happened.
    pub kind: EventKind,
}

/// The kind of an event, with its data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The session was opened. Sessions of older versions lack this event.
    Opened {
        /// Its settings.
        profile: Box<SessionProfile>,
    },
    /// A history was imported.
    Imported {
        /// The history so far.
        messages: Vec<Message>,
        /// The container that the service's tools ran in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        container: Option<ContainerId>,
    },
    /// The session uses another model from now on.
    ModelChanged {
        /// The model before, by its name in the embedder's configuration; `None`: the session named none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// The model from now on, by its name in the embedder's configuration.
        to: String,
        /// The container of the former model's service. The session forgets it, because the new model's service has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        container: Option<ContainerId>,
    },
    /// The session's settings changed.
    ProfileChanged {
        /// The changed settings.
        change: Box<ProfileChange>,
    },
    /// The session is a fork: the events before this one are those of another session. From here on its queue is empty, and it has
    /// no container and no uploads at the model's service.
    Forked {
        /// The other session.
        #[serde(serialize_with = "SessionId::serialize_stored")]
        from: SessionId,
        /// How many of its events there are here.
        events: u64,
        /// The note to the model about what the fork does not have: the container of the model's service, or the former path of the
        /// workspace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<Block>,
    },
    /// A turn started.
    TurnStarted {
        /// The id of the turn.
        turn: TurnId,
        /// The user's input; empty when the turn retries a message without a response.
        input: Vec<Block>,
        /// The limits of the turn.
        limits: Limits,
        /// The queued input that it takes; `None` when the input was not queued.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued: Option<QueueId>,
        /// When that input was queued; `None` in events of older versions too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued_at: Option<Timestamp>,
    },
    /// A model call started.
    ModelCallStarted {
        /// The id of the turn.
        turn: TurnId,
        /// The number of the call in its turn, from 1.
        call: u32,
        /// Its possible side effects; `None` in events of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effects: Option<SideEffects>,
    },
    /// A model call ended with a response.
    ModelAnswered {
        /// The id of the turn.
        turn: TurnId,
        /// The number of the call in its turn, from 1.
        call: u32,
        /// The complete response, raw. Only duplicate ids of tool calls were replaced.
        response: Box<Response>,
    },
    /// A model call failed.
    ModelCallFailed {
        /// The id of the turn.
        turn: TurnId,
        /// The number of the call in its turn, from 1.
        call: u32,
        /// The error.
        error: ModelError,
    },
    /// A model call was running when its driver ended. It is due again.
    ModelCallAbandoned {
        /// The id of the turn.
        turn: TurnId,
        /// The number of the call in its turn, from 1.
        call: u32,
    },
    /// The container of the service's tools is gone, as a failed call or a response reported. The next call gets a fresh one.
    ContainerLost {
        /// The id of the turn.
        turn: TurnId,
        /// The lost container.
        container: ContainerId,
        /// The note to the model. The uploads for the fresh container follow it.
        note: Block,
    },
    /// A note to the model was added. It goes with the user's last message, or before the next one.
    #[serde(rename = "model_told")]
    NoteAdded {
        /// The note.
        note: Block,
    },
    /// The service refused a block of the history, which was replaced.
    BlockReplaced {
        /// The message's place in the history, from 0.
        message: usize,
        /// The block's place in the message, from 0.
        block: usize,
        /// The new block.
        replacement: Block,
    },
    /// A compaction started.
    CompactionStarted {
        /// The id of the turn.
        turn: TurnId,
        /// The number of the compaction in its turn, from 1.
        compaction: u32,
        /// How many of the last messages stay.
        kept: usize,
        /// By how many input tokens the history must grow before the next compaction.
        regrowth: u64,
    },
    /// A summary replaced the first messages of the history. It is a user message.
    Compacted {
        /// The id of the turn.
        turn: TurnId,
        /// The number of the compaction in its turn, from 1.
        compaction: u32,
        /// How many of the last messages stay.
        kept: usize,
        /// The content that replaces the others.
        summary: Vec<Block>,
        /// The usage of the summary.
        usage: Usage,
        /// The model that wrote it, if the service reported it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The `request-id` of the service.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
    /// A compaction failed. The turn continues with the unchanged history.
    CompactionFailed {
        /// The id of the turn.
        turn: TurnId,
        /// The number of the compaction in its turn, from 1.
        compaction: u32,
        /// The error.
        error: CompactionError,
        /// The usage of the failed attempt.
        usage: Usage,
    },
    /// A compaction was running when its driver ended.
    CompactionAbandoned {
        /// The id of the turn.
        turn: TurnId,
        /// The number of the compaction in its turn, from 1.
        compaction: u32,
    },
    /// An approval was requested for a tool call.
    ApprovalRequested {
        /// The id of the call.
        call: CallId,
        /// The question to the approver.
        reason: String,
    },
    /// An approver decided on a tool call.
    ApprovalDecided {
        /// The id of the call.
        call: CallId,
        /// The decision.
        decision: Decision,
    },
    /// The result of a tool call was requested from outside of the runtime. Nothing runs for the call until it is provided.
    ResultRequested {
        /// The id of the call.
        call: CallId,
        /// Who provides the result.
        from: ResultFrom,
        /// The time at which the call ends with an error if its result was not provided; `None`: never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
    },
    /// The result of a tool call was provided from outside.
    ResultProvided {
        /// The result.
        result: ToolResult,
        /// Who provided it.
        from: ResultFrom,
    },
    /// A running tool call has ended with questions to a person. Nothing runs for the call until they are answered; then it runs again.
    InputRequired {
        /// The id of the call.
        call: CallId,
        /// How often it has asked, this time included.
        round: u32,
        /// The questions.
        request: Box<InputRequest>,
    },
    /// The questions of a tool call were answered.
    InputProvided {
        /// The id of the call.
        call: CallId,
        /// The number of the round, from 1.
        round: u32,
        /// The answers. Each question has one.
        answers: InputAnswers,
    },
    /// Nothing of the turn runs until one of these calls gets its decision, its result or its input. Turns of older versions lack
    /// this event.
    ActionRequired {
        /// The calls that wait, in order.
        calls: Vec<CallId>,
    },
    /// A tool call starts.
    ToolStarted {
        /// The id of the call.
        call: CallId,
        /// Whether the call can be repeated without a further effect.
        idempotent: bool,
    },
    /// An idempotent tool call was running when its driver ended. It is due again.
    ToolAbandoned {
        /// The id of the call.
        call: CallId,
    },
    /// A tool call has its result.
    ToolFinished {
        /// The result.
        result: ToolResult,
        /// How the call ended.
        outcome: CallOutcome,
    },
    /// The user added input while a turn ran.
    Steered {
        /// The input.
        input: Vec<Block>,
    },
    /// Some tool servers could not be queried, so their tools are missing.
    ToolServersFailed {
        /// The servers, and the reasons.
        failures: Vec<ToolServerFailure>,
        /// The note to the model.
        note: Block,
    },
    /// The user queued an input for a turn of its own.
    Queued {
        /// Its id in the queue.
        id: QueueId,
        /// The input.
        input: Vec<Block>,
        /// The limits of its turn, if the sender set any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limits: Option<Limits>,
    },
    /// The user removed an input from the queue.
    Unqueued {
        /// The id of the input.
        id: QueueId,
    },
    /// The turn ended.
    TurnFinished {
        /// The id of the turn.
        turn: TurnId,
        /// Why it ended.
        stop: TurnStop,
        /// The usage of its model calls.
        usage: Usage,
    },
    /// An artifact was registered.
    ArtifactRegistered {
        /// The artifact.
        artifact: Box<Artifact>,
    },
    /// An artifact was removed.
    ArtifactUnregistered {
        /// The name of the artifact.
        name: ArtifactName,
    },
    /// An artifact's URL was fetched. Fetches of a tool call are in its result ([`ToolResult::fetched`]).
    ArtifactFetched {
        /// The fetched content.
        fetched: Box<FetchedArtifact>,
    },
    /// An artifact was uploaded to the service for its containers. The user's last message has the upload block.
    ArtifactUploaded {
        /// The upload.
        uploaded: Box<UploadedArtifact>,
    },
    /// The files that a turn created or changed were recorded.
    FilesProduced {
        /// The id of the turn.
        turn: TurnId,
        /// The files.
        files: Vec<SessionFile>,
        /// Whether the list is complete.
        #[serde(default)]
        completeness: Completeness,
    },
}

impl EventKind {
    /// The usage that the event records: of a response or of a summary.
    #[must_use]
    pub const fn usage(&self) -> Option<&Usage> {
        match self {
            Self::ModelAnswered { response, .. } => Some(&response.usage),
            Self::Compacted { usage, .. } | Self::CompactionFailed { usage, .. } => Some(usage),
            _ => None,
        }
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Envelope<'a> {
            version: u32,
            at: Timestamp,
            event: &'a EventKind,
        }
        Envelope { version: EVENT_FORMAT, at: self.at, event: &self.kind }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Envelope {
            #[serde(deserialize_with = "known_version")]
            #[expect(dead_code, reason = "checked while it is read; there is only one version so far")]
            version: u32,
            at: Timestamp,
            event: EventKind,
        }
        let Envelope { at, event, .. } = Envelope::deserialize(deserializer)?;
        Ok(Self { at, kind: event })
    }
}

/// Refuses events of a later library with a clear message, before their body is read: the version is written first.
fn known_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let version = u32::deserialize(deserializer)?;
    if version == 0 || version > EVENT_FORMAT {
        return Err(serde::de::Error::custom(format!(
            "events of format {version} are unknown to this version, which reads 1 to {EVENT_FORMAT}"
        )));
    }
    Ok(version)
}

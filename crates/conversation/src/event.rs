//! What happened in a session, as it is recorded: versioned, and all that the state is rebuilt from.
//!
//! One event is one JSON object `{"version":1,"at":MILLISECONDS,"event":{"KIND":{...}}}`. Content of messages
//! stays raw in it: the enums are externally tagged, because any other form buffers and would reformat numbers.

use std::fmt;

use conjure_base::{CallId, ContainerId, Timestamp, TurnId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::artifact::{Artifact, ArtifactName, FetchedArtifact, UploadedArtifact};
use crate::compaction::CompactionError;
use crate::content::Block;
use crate::files::{Completeness, SessionFile};
use crate::limits::{Limit, Limits};
use crate::message::Message;
use crate::model::{CallEffects, ModelError, Response};
use crate::profile::Profile;
use crate::queue::QueueId;
use crate::standing::Grant;
use crate::stop::StopReason;
use crate::tool::ToolResult;
use crate::usage::Usage;

/// The version of the event format that this library writes. It reads this one and all before it.
pub const EVENT_FORMAT: u32 = 1;

/// One recorded fact and when it happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When, by the wall clock of whoever recorded it.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
}

/// What happened. Read together with the events before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The session was opened. Sessions of older versions lack it.
    Opened {
        /// With what.
        profile: Box<Profile>,
    },
    /// The session began with messages from elsewhere.
    Imported {
        /// The history so far.
        messages: Vec<Message>,
        /// The container that the service's tools ran in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        container: Option<ContainerId>,
    },
    /// A turn began.
    TurnStarted {
        /// Which turn.
        turn: TurnId,
        /// What the user said; empty when an unanswered message is tried again.
        input: Vec<Block>,
        /// What the turn may consume.
        limits: Limits,
        /// The input of the queue that it takes; none when the input came by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued: Option<QueueId>,
    },
    /// The model is being called.
    ModelCallStarted {
        /// Which turn.
        turn: TurnId,
        /// The call's place in its turn, from 1.
        call: u32,
        /// Whether it may do something where nobody here sees it; none where that was not recorded yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effects: Option<CallEffects>,
    },
    /// The model answered.
    ModelAnswered {
        /// Which turn.
        turn: TurnId,
        /// Which call of it.
        call: u32,
        /// The whole answer, raw; only an id of a tool call that was there before has been made unique.
        response: Box<Response>,
    },
    /// A model call failed.
    ModelCallFailed {
        /// Which turn.
        turn: TurnId,
        /// Which call of it.
        call: u32,
        /// Why.
        error: ModelError,
    },
    /// A model call was under way when its driver ended. It is due again.
    ModelCallAbandoned {
        /// Which turn.
        turn: TurnId,
        /// Which call of it.
        call: u32,
    },
    /// The container that the service's tools ran in has expired, or is gone, as a failed call or an answer says. The next call is in a fresh
    /// one.
    ContainerLost {
        /// Which turn.
        turn: TurnId,
        /// Which container.
        container: ContainerId,
        /// What the model is told; behind it stand the artifacts that the service was given, for the fresh one.
        note: Block,
    },
    /// The model is told something that nobody said: with the user's last words, or before their next.
    ModelTold {
        /// What.
        note: Block,
    },
    /// The service refused a block of the history, which was replaced.
    BlockReplaced {
        /// The message's place in the history, from 0.
        message: usize,
        /// The block's place in the message, from 0.
        block: usize,
        /// What stands there now.
        replacement: Block,
    },
    /// The first messages of the history are being summarised.
    CompactionStarted {
        /// Which turn.
        turn: TurnId,
        /// The compaction's place in its turn, from 1.
        compaction: u32,
        /// How many of the last messages stay as they are.
        kept: usize,
        /// By how many tokens of input the history must grow after it before the next one.
        regrowth: u64,
    },
    /// The first messages of the history were replaced by a message of the user's that holds a summary of them.
    Compacted {
        /// Which turn.
        turn: TurnId,
        /// Which compaction of it.
        compaction: u32,
        /// How many of the last messages stay as they are.
        kept: usize,
        /// What stands in place of the others.
        summary: Vec<Block>,
        /// What the summary consumed.
        usage: Usage,
        /// The model that wrote it, where the service said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The `request-id` of the service.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
    /// A compaction changed nothing. The turn goes on.
    CompactionFailed {
        /// Which turn.
        turn: TurnId,
        /// Which compaction of it.
        compaction: u32,
        /// Why.
        error: CompactionError,
        /// What was consumed all the same.
        usage: Usage,
    },
    /// A summary was being written when its driver ended.
    CompactionAbandoned {
        /// Which turn.
        turn: TurnId,
        /// Which compaction of it.
        compaction: u32,
    },
    /// A person must decide on a tool call.
    ApprovalRequested {
        /// Which call.
        call: CallId,
        /// What the person is asked.
        reason: String,
    },
    /// A person decided.
    ApprovalDecided {
        /// Which call.
        call: CallId,
        /// What.
        decision: Decision,
    },
    /// A tool call is about to run.
    ToolStarted {
        /// Which call.
        call: CallId,
        /// Whether running it twice does what running it once does.
        idempotent: bool,
    },
    /// An idempotent tool call was running when its driver ended. It is due again.
    ToolAbandoned {
        /// Which call.
        call: CallId,
    },
    /// A tool call has its one result.
    ToolFinished {
        /// What the model is told.
        result: ToolResult,
        /// How it came to be.
        outcome: ToolOutcome,
    },
    /// The user added something while a turn ran.
    Steered {
        /// What.
        input: Vec<Block>,
    },
    /// The user said something that is to be a turn of its own, after those before it.
    Queued {
        /// Its place in the queue.
        id: QueueId,
        /// What.
        input: Vec<Block>,
        /// What its turn may consume, where that was said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limits: Option<Limits>,
    },
    /// The user took back what was queued.
    Unqueued {
        /// Which.
        id: QueueId,
    },
    /// The turn ended.
    TurnFinished {
        /// Which turn.
        turn: TurnId,
        /// Why.
        stop: TurnStop,
        /// What its model calls consumed.
        usage: Usage,
    },
    /// The session was given an artifact.
    ArtifactRegistered {
        /// Which.
        artifact: Box<Artifact>,
    },
    /// The session does not have an artifact any more.
    ArtifactUnregistered {
        /// Which.
        name: ArtifactName,
    },
    /// An artifact's URL was fetched. What a tool call fetched stands in its result ([`ToolResult::fetched`]).
    ArtifactFetched {
        /// What it led to.
        fetched: Box<FetchedArtifact>,
    },
    /// The service was given an artifact for its containers; the user's last message has the block that puts it there.
    ArtifactUploaded {
        /// Which, and how.
        uploaded: Box<UploadedArtifact>,
    },
    /// It became known what files a turn created or changed.
    FilesProduced {
        /// Which turn.
        turn: TurnId,
        /// Which files.
        files: Vec<SessionFile>,
        /// Whether these are all.
        #[serde(default)]
        completeness: Completeness,
    },
}

impl EventKind {
    /// What was consumed for it: by an answer, or by a summary.
    #[must_use]
    pub const fn consumed(&self) -> Option<&Usage> {
        match self {
            Self::ModelAnswered { response, .. } => Some(&response.usage),
            Self::Compacted { usage, .. } | Self::CompactionFailed { usage, .. } => Some(usage),
            _ => None,
        }
    }
}

/// A person's decision on a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It may run.
    Allow,
    /// It may run, and so may later calls.
    Grant {
        /// Which, and for how long.
        grant: Grant,
    },
    /// It may not; the model is told why.
    Deny {
        /// Why.
        reason: String,
    },
}

/// How a tool call's result came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolOutcome {
    /// The tool ran and said so itself, well or not.
    Finished,
    /// Policy or a person denied it; it did not run.
    Denied,
    /// It never ran: the answer was cut, a limit was reached, or the turn ended before.
    NotRun,
    /// It was cancelled while it ran; it may have done a part.
    Cancelled,
    /// It ran when its driver ended; nobody knows what it did.
    Unknown,
}

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnStop {
    /// The model is done; the answer is whole.
    Answered(StopReason),
    /// The answer was cut, or ended for a reason that we do not know. Tool calls in it did not run.
    Cut(StopReason),
    /// The model refused. Tool calls in the answer did not run.
    Refused,
    /// A breaker.
    Limit(Limit),
    /// The model call failed.
    ModelFailed(ModelError),
    /// Somebody interrupted it.
    Interrupted,
    /// The deadline of the whole run passed.
    Deadline,
}

impl fmt::Display for TurnStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(reason) => write!(f, "the model is done ({reason})"),
            Self::Cut(reason) => write!(f, "the answer was cut ({reason})"),
            Self::Refused => f.write_str("the model refused"),
            Self::Limit(limit) => write!(f, "{limit} was reached"),
            Self::ModelFailed(error) => write!(f, "the model call failed: {error}"),
            Self::Interrupted => f.write_str("the turn was interrupted"),
            Self::Deadline => f.write_str("the deadline passed"),
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

/// Refuses events of a later library with a message that says so, before their body is looked at: the version
/// is written first.
fn known_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let version = u32::deserialize(deserializer)?;
    if version == 0 || version > EVENT_FORMAT {
        return Err(serde::de::Error::custom(format!(
            "events of format {version} are unknown to this version, which reads 1 to {EVENT_FORMAT}"
        )));
    }
    Ok(version)
}

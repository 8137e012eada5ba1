//! The state of a session's conversation: what its events add up to.
//!
//! It is changed by [`apply`](crate::apply) alone, one event at a time; work per event does not depend on how
//! long the history is. Losing it costs nothing: the same events rebuild an equal one.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use conjure_base::{CallId, ContainerId, Digest, Timestamp, TurnId};

use crate::artifact::{Artifact, UploadedArtifact};
use crate::compaction::{CompactionPolicy, Gauge, UnderWay, due};
use crate::content::{Block, BlockKind};
use crate::event::TurnStop;
use crate::files::{FileSource, SessionFile};
use crate::limits::Limits;
use crate::message::{Message, Role};
use crate::model::CallEffects;
use crate::profile::{PinnedSkill, Profile};
use crate::queue::{QueueId, QueuedInput};
use crate::service_tools::{NOT_AWAITED, settle};
use crate::standing::Standing;
use crate::tool::{ToolCall, ToolResult};
use crate::usage::Usage;

/// A session's conversation. Begin with [`State::default`] and apply every recorded event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// What the session was opened with.
    pub(crate) profile: Option<Arc<Profile>>,
    pub(crate) messages: Vec<Arc<Message>>,
    pub(crate) tail: Tail,
    /// What the user added while a turn ran, and the model has not been shown.
    pub(crate) steering: Vec<Block>,
    /// What waits for a turn of its own, and the id that was given last.
    pub(crate) queue: VecDeque<QueuedInput>,
    pub(crate) last_queued: QueueId,
    pub(crate) turn: Option<Turn>,
    pub(crate) last: Option<FinishedTurn>,
    pub(crate) usage: Usage,
    /// All ids of tool calls so far: the service wants them unique.
    pub(crate) call_ids: HashSet<CallId>,
    /// The blocks that were replaced, by message and block: once is enough for each.
    pub(crate) replaced: BTreeSet<(usize, usize)>,
    /// The container of the model's service that the session uses.
    pub(crate) container: Option<ContainerId>,
    pub(crate) standing: Standing,
    /// In which message an active skill's load was answered, by name; 0 once that is a part of a summary.
    pub(crate) delivered: BTreeMap<String, usize>,
    /// How long the history is.
    pub(crate) gauge: Gauge,
    /// What the service was given of its artifacts, for its containers.
    pub(crate) uploaded: Vec<UploadedArtifact>,
    /// The files that its turns produced, by where they lie.
    pub(crate) files: Arc<BTreeMap<(FileSource, String), SessionFile>>,
    /// The last turn whose files are known, and when the turn began whose files are not.
    pub(crate) files_of: Option<TurnId>,
    pub(crate) began: Timestamp,
    /// Whether that turn has run a tool, here or with the model's service.
    pub(crate) has_acted: bool,
    /// What that turn put a summary in the place of, and in which the service's tools say what they made.
    pub(crate) summarized: Vec<Arc<Message>>,
    /// When something was recorded last.
    pub(crate) touched: Timestamp,
}

/// What the last message is, where its role does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Whole: a further answer needs a message of the user first.
    #[default]
    Whole,
    /// A paused answer of the assistant: the next answer continues it.
    Paused,
}

/// The turn that is running.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    pub(crate) id: TurnId,
    pub(crate) limits: Limits,
    pub(crate) usage: Usage,
    pub(crate) phase: Phase,
    pub(crate) model_calls: u32,
    pub(crate) tool_calls: u32,
    pub(crate) pauses: u32,
    pub(crate) compactions: u32,
    /// How long it has worked, in milliseconds, up to its last event, and when that was.
    pub(crate) worked: u64,
    pub(crate) last_at: Timestamp,
    /// The calls of the last answer with tools, and in how many answers in a row each was made.
    pub(crate) repeats: BTreeMap<Digest, u32>,
    /// In how many answers each tool was denied, and in which model call last.
    pub(crate) denied: BTreeMap<String, Denials>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Denials {
    pub(crate) answers: u32,
    pub(crate) last_call: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Phase {
    /// The model must be called.
    ModelDue,
    /// The model is being called; with what effects is known since before.
    Calling(CallEffects),
    /// The beginning of the history is being summarised; then the model must be called.
    Compacting(UnderWay),
    /// The calls of the last answer, in order, until all have their result.
    Tools(Vec<OpenCall>),
    /// The last answer ends the turn; only the event that says so is missing.
    Closing(TurnStop),
}

/// A tool call of the last answer, and how far it is.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenCall {
    /// The call.
    pub call: ToolCall,
    /// How far it is.
    pub status: CallStatus,
}

/// How far a tool call is.
#[derive(Debug, Clone, PartialEq)]
pub enum CallStatus {
    /// Nobody has looked at it.
    New,
    /// A person must decide.
    AwaitingApproval {
        /// What the person is asked.
        reason: String,
    },
    /// It may run; policy need not be asked again.
    Approved,
    /// It runs, or ran when its driver ended.
    Started {
        /// Whether running it twice does what running it once does.
        idempotent: bool,
    },
    /// It has its result.
    Finished(ToolResult),
}

/// A tool call that waits for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    /// The call.
    pub call: ToolCall,
    /// What the person is asked.
    pub reason: String,
}

/// How the last turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedTurn {
    /// Which turn.
    pub turn: TurnId,
    /// Why it ended.
    pub stop: TurnStop,
    /// How often the model was called, also where no answer came of it.
    pub model_calls: u32,
    /// How often an answer was to be resumed: as often as it was, and once more where [`Limits::pauses`] forbade it.
    pub pauses: u32,
    /// What it might consume: where a limit ended it, by which.
    pub limits: Limits,
    /// What its model calls consumed.
    pub usage: Usage,
}

impl State {
    /// The history. At the step [`crate::Step::CallModel`] it is what the next request holds.
    #[must_use]
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// What the session was opened with; none for a session that was never said to be opened.
    #[must_use]
    pub fn profile(&self) -> Option<&Arc<Profile>> {
        self.profile.as_ref()
    }

    /// What waits for a turn of its own, the next first.
    pub fn queue(&self) -> impl DoubleEndedIterator<Item = &QueuedInput> + ExactSizeIterator {
        self.queue.iter()
    }

    /// The running turn.
    #[must_use]
    pub const fn turn(&self) -> Option<&Turn> {
        self.turn.as_ref()
    }

    /// How the last turn ended; none before the first has.
    #[must_use]
    pub const fn last_turn(&self) -> Option<&FinishedTurn> {
        self.last.as_ref()
    }

    /// What all model calls of the session consumed.
    #[must_use]
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The container that the service's tools ran in last. At the step [`crate::Step::CallModel`] it goes with the
    /// request. A model that says that it is gone ([`crate::ModelErrorKind::ContainerGone`]) makes the session forget it: the next request, of the same turn, asks for
    /// a fresh one and tells the model so.
    #[must_use]
    pub const fn container(&self) -> Option<&ContainerId> {
        self.container.as_ref()
    }

    /// Which skills are active, and what was granted for longer than one call.
    #[must_use]
    pub const fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The artifacts whose bytes are known and that the service was not given yet, as they are now.
    pub fn uploads_due(&self) -> impl Iterator<Item = &Arc<Artifact>> {
        self.standing.artifacts().iter().filter(|artifact| {
            artifact.content.as_ref().is_some_and(|content| {
                !self.uploaded.iter().any(|up| up.name == artifact.name && up.digest == content.digest)
            })
        })
    }

    /// Whether an artifact may be given to the service now: a model call is due, and it resumes no pause.
    #[must_use]
    pub fn takes_uploads(&self) -> bool {
        self.tail == Tail::Whole && matches!(self.turn, Some(Turn { phase: Phase::ModelDue, .. }))
    }

    /// The files that its turns created or changed, by where they lie and what they are called there.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &SessionFile> {
        self.files.values()
    }

    /// The same, shared: what comes later does not change it.
    #[must_use]
    pub fn shared_files(&self) -> Arc<BTreeMap<(FileSource, String), SessionFile>> {
        Arc::clone(&self.files)
    }

    /// Whether the last turn, over or running, has run a tool: here, or with the model's service. One that has not has produced no
    /// files.
    #[must_use]
    pub const fn has_acted(&self) -> bool {
        self.has_acted
    }

    /// Where the service's tools say what they made in the last turn, over or running: the history, and before it the messages that a
    /// summary took the place of in that turn and in which such a tool was called or answered.
    #[must_use]
    pub fn messages_of_record(&self) -> Vec<Arc<Message>> {
        self.summarized.iter().chain(&self.messages).cloned().collect()
    }

    /// When something was recorded last; the beginning of time, where nothing was.
    #[must_use]
    pub const fn touched(&self) -> Timestamp {
        self.touched
    }

    /// The last turn, over or running, and when it began, while it is not recorded which files it produced.
    #[must_use]
    pub fn files_due(&self) -> Option<(TurnId, Timestamp)> {
        let last = self.turn.as_ref().map(|turn| turn.id).or(self.last.as_ref().map(|last| last.turn))?;
        (self.files_of != Some(last)).then_some((last, self.began))
    }

    /// How many of the last messages would stay, were the history compacted now; none when nothing is due.
    #[must_use]
    pub fn compaction_due(&self, policy: &CompactionPolicy) -> Option<usize> {
        due(self, policy)
    }

    /// The active skills whose load was answered before the last `kept` messages.
    #[must_use]
    pub fn standing_before(&self, kept: usize) -> Standing {
        let replaced = self.messages.len().saturating_sub(kept);
        let is_before =
            |skill: &&PinnedSkill| self.delivered.get(&skill.name).is_none_or(|at| *at < replaced);
        let active = self.standing.active_skills().iter().filter(is_before).cloned();
        Standing::with_active(active.collect::<Vec<_>>())
    }

    /// The calls of the last answer in order, while any of them lacks its result; else none.
    #[must_use]
    pub fn open_calls(&self) -> &[OpenCall] {
        match self.turn.as_ref().map(|turn| &turn.phase) {
            Some(Phase::Tools(calls)) => calls,
            _ => &[],
        }
    }

    /// The calls that wait for a person, in order.
    #[must_use]
    pub fn approvals(&self) -> Vec<Approval> {
        self.open_calls()
            .iter()
            .filter_map(|open| match &open.status {
                CallStatus::AwaitingApproval { reason } => {
                    Some(Approval { call: open.call.clone(), reason: reason.clone() })
                }
                _ => None,
            })
            .collect()
    }

    /// The text of the last answer; empty when the history holds none.
    #[must_use]
    pub fn last_text(&self) -> String {
        let last = self.messages.iter().rev().find(|message| message.role == Role::Assistant);
        last.map(|message| message.text()).unwrap_or_default()
    }

    pub(crate) fn last_role(&self) -> Option<Role> {
        self.messages.last().map(|message| message.role)
    }

    pub(crate) fn open_call(&self, id: &CallId) -> Option<&OpenCall> {
        self.open_calls()
            .iter()
            .find(|open| open.call.id == *id && !matches!(open.status, CallStatus::Finished(_)))
    }

    /// Appends to the user's last message, or begins one.
    pub(crate) fn push_user(&mut self, blocks: Vec<Block>) {
        if !blocks.is_empty() {
            if self.tail == Tail::Paused {
                // What is not resumed any more must not await anything of the service.
                self.settle(NOT_AWAITED);
            }
            self.tail = Tail::Whole;
            self.push(Role::User, blocks);
        }
    }

    /// Puts this text in place of what the model's last message still awaits of the service.
    pub(crate) fn settle(&mut self, text: &str) {
        if let Some(last) = self.messages.iter_mut().rev().find(|message| message.role == Role::Assistant) {
            settle(&mut Arc::make_mut(last).content, text);
        }
    }

    /// Appends what the model said: to its paused answer, or as a new message.
    pub(crate) fn push_assistant(&mut self, blocks: Vec<Block>) {
        if !blocks.is_empty() {
            self.push(Role::Assistant, blocks);
        }
    }

    fn push(&mut self, role: Role, blocks: Vec<Block>) {
        match self.messages.last_mut() {
            Some(last) if last.role == role => Arc::make_mut(last).content.extend(blocks),
            _ => self.messages.push(Arc::new(Message { role, content: blocks })),
        }
    }

    /// Shows the model what the user added, unless a paused answer must be resumed without it.
    pub(crate) fn flush_steering(&mut self) {
        if self.tail == Tail::Whole {
            let steering = std::mem::take(&mut self.steering);
            self.push_user(steering);
        }
    }
}

impl Turn {
    /// Which turn.
    #[must_use]
    pub const fn id(&self) -> TurnId {
        self.id
    }

    /// What it may consume.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What its model calls have consumed so far.
    #[must_use]
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// How often the model was called, a call under way included.
    #[must_use]
    pub const fn model_calls(&self) -> u32 {
        self.model_calls
    }

    /// How often its history was about to be compacted, one under way included.
    #[must_use]
    pub const fn compactions(&self) -> u32 {
        self.compactions
    }

    /// How long it has worked at `now`: how long its model and its tools took. Whatever it waited for else does not count, be it
    /// a person, somebody who drives it, or a host that was down; of what was under way when a driver ended, only the part
    /// up to the last event before is known, and counts.
    #[must_use]
    pub fn elapsed(&self, now: Timestamp) -> std::time::Duration {
        let under_way = if self.is_working() { millis(now.since(self.last_at)) } else { 0 };
        std::time::Duration::from_millis(self.worked.saturating_add(under_way))
    }

    /// Whether a call of the model or of a tool is under way.
    pub(crate) fn is_working(&self) -> bool {
        match &self.phase {
            Phase::Calling(_) | Phase::Compacting(_) => true,
            Phase::Tools(calls) => calls.iter().any(|open| matches!(open.status, CallStatus::Started { .. })),
            Phase::ModelDue | Phase::Closing(_) => false,
        }
    }
}

pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a block of the model may stand in a request. The service sends texts of nothing but white space
/// and refuses them when they come back; a result of ours cannot be the model's.
pub(crate) fn assistant_may_say(block: &Block) -> bool {
    match block.kind() {
        BlockKind::Text(text) => !text.trim().is_empty(),
        BlockKind::ToolResult { .. } => false,
        _ => true,
    }
}

impl CallStatus {
    pub(crate) const fn describe(&self) -> &'static str {
        match self {
            Self::New => "not started",
            Self::AwaitingApproval { .. } => "waiting for a person",
            Self::Approved => "approved and not started",
            Self::Started { .. } => "running",
            Self::Finished(_) => "finished",
        }
    }
}

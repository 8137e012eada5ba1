//! The state of a session's conversation, as its events define it.
//!
//! Only [`apply`](crate::apply) changes it, one event at a time. The work per event does not depend on the length of the history. The
//! state is not stored: the same events rebuild an equal one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use conjure_base::{CallId, ContainerId, Timestamp, TurnId};

use crate::compaction::HistorySize;
use crate::content::block::{Block, BlockKind};
use crate::content::message::{Message, Role};
use crate::content::native::NativeContent;
use crate::model::Usage;
use crate::session::artifact::{Artifact, UploadedArtifact};
use crate::session::pinned_skill::PinnedSkill;
use crate::session::queue::{QueueId, QueuedInput};
use crate::session::session_file::{FileSource, SessionFile};
use crate::session::session_profile::SessionProfile;
use crate::session::session_view::SessionView;
use crate::state::open_call::{Approval, CallStatus, OpenCall, PendingAction};
use crate::state::running_turn::{FinishedTurn, RunningTurn, TurnPhase};
use crate::tools::call_answer::CallAnswers;
use crate::tools::server_tools::{NOT_AWAITED, replace_unfinished};

/// The state of a session. Start with [`SessionState::default`] and apply every recorded event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionState {
    /// The recorded settings.
    pub(crate) profile: Option<Arc<SessionProfile>>,
    pub(crate) messages: Vec<Arc<Message>>,
    pub(crate) last_message: LastMessage,
    /// The input that the user added while a turn ran, and that the model has not read yet.
    pub(crate) steering: Vec<Block>,
    /// The inputs that wait for a turn of their own.
    pub(crate) queue: VecDeque<QueuedInput>,
    pub(crate) last_queued: QueueId,
    pub(crate) turn: Option<RunningTurn>,
    pub(crate) last: Option<FinishedTurn>,
    pub(crate) usage: Usage,
    /// All ids of tool calls so far: the service requires unique ones.
    pub(crate) call_ids: HashSet<CallId>,
    /// The digests of the decisions, results and input that came from outside. With them a repeated answer is recognised.
    pub(crate) answers: HashMap<CallId, CallAnswers>,
    /// The replaced blocks, by message and block. Each is replaced only once.
    pub(crate) replaced: BTreeSet<(usize, usize)>,
    /// The container of the model's service that the session uses.
    pub(crate) container: Option<ContainerId>,
    pub(crate) view: SessionView,
    /// The message with the result of each active skill's load, by name; 0 once that message is part of a summary.
    pub(crate) skill_messages: BTreeMap<String, usize>,
    /// The size of the history.
    pub(crate) history_size: HistorySize,
    /// The artifacts that were uploaded to the service, for its containers.
    pub(crate) uploaded: Vec<UploadedArtifact>,
    /// The files that its turns produced, by source and id.
    pub(crate) files: Arc<BTreeMap<(FileSource, String), SessionFile>>,
    /// The last turn whose files are recorded.
    pub(crate) files_recorded_for: Option<TurnId>,
    pub(crate) files_turn_began: Timestamp,
    /// Whether the last turn has run a tool, here or at the model's service.
    pub(crate) has_run_tools: bool,
    /// Whether any turn has started a tool here. Its sandbox may be gone since.
    pub(crate) has_started_tools: bool,
    /// The messages with results of the service's tools that the last turn replaced by a summary.
    pub(crate) summarized_messages: Vec<Arc<Message>>,
    /// The time of the last event.
    pub(crate) touched: Timestamp,
}

/// The kind of the last message, beyond its role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LastMessage {
    /// Complete: the next request must add a user message.
    #[default]
    Complete,
    /// A paused response: the next response continues it.
    Paused,
}

impl SessionState {
    /// The history. At the step [`crate::Step::CallModel`] the next request sends it.
    #[must_use]
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// The recorded settings of the session; `None` for a session that was never opened with any.
    #[must_use]
    pub fn profile(&self) -> Option<&Arc<SessionProfile>> {
        self.profile.as_ref()
    }

    /// The queued inputs, the next one first.
    pub fn queue(&self) -> impl DoubleEndedIterator<Item = &QueuedInput> + ExactSizeIterator {
        self.queue.iter()
    }

    /// The running turn.
    #[must_use]
    pub const fn turn(&self) -> Option<&RunningTurn> {
        self.turn.as_ref()
    }

    /// How the last turn ended; `None` before the first end.
    #[must_use]
    pub const fn last_turn(&self) -> Option<&FinishedTurn> {
        self.last.as_ref()
    }

    /// The usage of all model calls of the session.
    #[must_use]
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The container that the service's tools last ran in. At the step [`crate::Step::CallModel`] the request names it.
    ///
    /// When the model reports that it is gone ([`crate::ModelErrorKind::ContainerGone`]), the session forgets it. The next request of the
    /// same turn then asks for a fresh one, with a note to the model.
    #[must_use]
    pub const fn container(&self) -> Option<&ContainerId> {
        self.container.as_ref()
    }

    /// The active skills, the grants and the artifacts.
    #[must_use]
    pub const fn view(&self) -> &SessionView {
        &self.view
    }

    /// The artifacts with known content that the service does not have yet.
    pub fn pending_uploads(&self) -> impl Iterator<Item = &Arc<Artifact>> {
        self.view.artifacts().iter().filter(|artifact| {
            artifact.content.as_ref().is_some_and(|content| {
                !self.uploaded.iter().any(|up| up.name == artifact.name && up.digest == content.digest)
            })
        })
    }

    /// Whether an upload may be attached now: a model call is due, and it does not resume a pause.
    #[must_use]
    pub fn accepts_uploads(&self) -> bool {
        self.last_message == LastMessage::Complete
            && matches!(self.turn, Some(RunningTurn { phase: TurnPhase::CallModel, .. }))
    }

    /// The files that its turns created or changed, by source and id.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &SessionFile> {
        self.files.values()
    }

    /// The files of [`SessionState::files`], as a shared snapshot.
    #[must_use]
    pub fn shared_files(&self) -> Arc<BTreeMap<(FileSource, String), SessionFile>> {
        Arc::clone(&self.files)
    }

    /// Whether the last or running turn has run a tool, here or at the model's service. Otherwise it has produced no files.
    #[must_use]
    pub const fn has_run_tools(&self) -> bool {
        self.has_run_tools
    }

    /// Whether any turn of the session has started a tool here. Then the session may have had a sandbox.
    #[must_use]
    pub const fn has_started_tools(&self) -> bool {
        self.has_started_tools
    }

    /// The messages to search for files that the service's tools made in the last or running turn.
    ///
    /// These are the history, preceded by the messages with calls or results of such tools that this turn replaced by a summary.
    #[must_use]
    pub fn uncompacted_messages(&self) -> Vec<Arc<Message>> {
        self.summarized_messages.iter().chain(&self.messages).cloned().collect()
    }

    /// The time of the last event; the default timestamp when there is none.
    #[must_use]
    pub const fn last_event_at(&self) -> Timestamp {
        self.touched
    }

    /// The last or running turn and when it began, while its files are not recorded yet.
    #[must_use]
    pub fn files_due(&self) -> Option<(TurnId, Timestamp)> {
        let last = self.turn.as_ref().map(|turn| turn.id).or(self.last.as_ref().map(|last| last.turn))?;
        (self.files_recorded_for != Some(last)).then_some((last, self.files_turn_began))
    }

    /// The active skills whose load was answered before the last `kept` messages.
    #[must_use]
    pub fn view_before(&self, kept: usize) -> SessionView {
        let replaced = self.messages.len().saturating_sub(kept);
        let is_before =
            |skill: &&PinnedSkill| self.skill_messages.get(&skill.name).is_none_or(|at| *at < replaced);
        let active = self.view.active_skills().iter().filter(is_before).cloned();
        SessionView::with_active_skills(active.collect::<Vec<_>>())
    }

    /// The calls of the last response in order, while any of them lacks its result; otherwise empty.
    #[must_use]
    pub fn open_calls(&self) -> &[OpenCall] {
        match self.turn.as_ref().map(|turn| &turn.phase) {
            Some(TurnPhase::Tools(calls)) => calls,
            _ => &[],
        }
    }

    /// The calls that wait for an approval, in order.
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

    /// The calls that wait for an approval, a result or input, in order.
    #[must_use]
    pub fn pending_actions(&self) -> Vec<PendingAction> {
        self.open_calls()
            .iter()
            .filter_map(|open| {
                Some(PendingAction { call: open.call.clone(), need: open.status.action_need()? })
            })
            .collect()
    }

    /// The earliest time at which a call ends because its result was not provided.
    #[must_use]
    pub fn result_deadline(&self) -> Option<Timestamp> {
        self.open_calls()
            .iter()
            .filter_map(|open| match open.status {
                CallStatus::AwaitingResult { deadline, .. } => deadline,
                _ => None,
            })
            .min()
    }

    /// The text of the last response; empty when there is none.
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

    /// Appends to the user's last message, or starts one.
    pub(crate) fn push_user(&mut self, blocks: Vec<Block>) {
        if !blocks.is_empty() {
            if self.last_message == LastMessage::Paused {
                // A response that is not resumed must not hold unfinished calls of the service's tools.
                self.replace_unfinished(NOT_AWAITED);
            }
            self.last_message = LastMessage::Complete;
            self.push(Role::User, blocks, None);
        }
    }

    /// Replaces the unfinished server-side tool calls of the model's last message by this text.
    pub(crate) fn replace_unfinished(&mut self, text: &str) {
        if let Some(last) = self.messages.iter_mut().rev().find(|message| message.role == Role::Assistant) {
            let last = Arc::make_mut(last);
            replace_unfinished(&mut last.content, text);
            last.native = None;
        }
    }

    /// Appends the model's blocks to its paused response, or as a new message.
    pub(crate) fn push_assistant(&mut self, blocks: Vec<Block>, native: Option<Arc<NativeContent>>) {
        if !blocks.is_empty() {
            self.push(Role::Assistant, blocks, native);
        }
    }

    fn push(&mut self, role: Role, blocks: Vec<Block>, native: Option<Arc<NativeContent>>) {
        match self.messages.last_mut() {
            Some(last) if last.role == role => {
                let last = Arc::make_mut(last);
                last.content.extend(blocks);
                last.native = NativeContent::join(last.native.take(), native);
            }
            _ => self.messages.push(Arc::new(Message { role, content: blocks, native })),
        }
    }

    /// Moves the input that the user added into the history, unless a paused response must be resumed without it.
    pub(crate) fn flush_steering(&mut self) {
        if self.last_message == LastMessage::Complete {
            let steering = std::mem::take(&mut self.steering);
            self.push_user(steering);
        }
    }
}

/// Whether a block of the model may be sent in a request. The service sends blank texts, but refuses them in requests. A tool result
/// cannot be the model's.
pub(crate) fn is_sendable(block: &Block) -> bool {
    match block.kind() {
        BlockKind::Text(text) => !text.trim().is_empty(),
        BlockKind::ToolResult { .. } => false,
        _ => true,
    }
}

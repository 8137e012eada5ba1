//! The state that is derived from a session's recorded events: the snapshot that callers read, its files and artifacts.
//!
//! State: in memory, across restarts of the session's actor. Each incarnation derives it again from the events that it
//! loads.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use conjure_artifact::ArtifactOptions;
use conjure_base::{Clock, Redactor, SystemClock, Timestamp, TurnId, lock};
use conjure_conversation::{
    ActionNeed, Artifact, ArtifactContent, Event, EventKind, FileSource, FinishedTurn, Message, SessionFile,
    SessionState, SessionView, Step, ToolCall, next,
};
use serde_json::value::RawValue;

use crate::session::event_redaction::{redact_json, redact_stop};
use crate::session::message::{SessionSnapshot, SessionStatus};

/// Whether a task owns the conversation and drives its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TurnActivity {
    Active,
    #[default]
    Idle,
}

/// Derived state of one session.
#[derive(Default)]
pub(crate) struct SessionProjection {
    state: Mutex<ProjectionState>,
}

#[derive(Default)]
struct ProjectionState {
    snapshot: SessionSnapshot,
    assets: SessionAssets,
    activity: TurnActivity,
    /// The last turn that is known to have produced no files.
    turn_without_outputs: Option<TurnId>,
    /// The end of a turn that is held back until the turn's files are on the host.
    held_turn_end: Option<Box<FinishedTurn>>,
}

/// The recorded artifacts and files of a session.
#[derive(Debug, Clone, Default)]
struct SessionAssets {
    view: SessionView,
    /// The time of the last event when these were derived. The artifacts of an idle session expire by it.
    last_change: Timestamp,
    files: Arc<BTreeMap<(FileSource, String), SessionFile>>,
}

impl SessionProjection {
    fn lock(&self) -> MutexGuard<'_, ProjectionState> {
        // Each change leaves the state consistent, so it can be used after a panic.
        lock(&self.state)
    }

    /// The snapshot, redacted.
    pub(crate) fn snapshot(&self, redactor: &Redactor) -> SessionSnapshot {
        let mut snapshot = self.lock().snapshot.clone();
        snapshot.last_text = redactor.redact(&snapshot.last_text).into_owned();
        if let Some(last) = &mut snapshot.last_turn {
            last.stop = redact_stop(redactor, &last.stop);
        }
        for grant in &mut snapshot.grants {
            grant.rule = redactor.redact(&grant.rule).into_owned();
        }
        for approval in &mut snapshot.approvals {
            approval.reason = redactor.redact(&approval.reason).into_owned();
            redact_input(redactor, &mut approval.call);
        }
        for action in &mut snapshot.pending_actions {
            if let ActionNeed::Approval { reason } = &mut action.need {
                *reason = redactor.redact(reason).into_owned();
            }
            redact_input(redactor, &mut action.call);
        }
        snapshot
    }

    pub(crate) fn status(&self) -> SessionStatus {
        self.lock().snapshot.status
    }

    /// The last turn whose end was reported.
    pub(crate) fn last_turn(&self) -> Option<TurnId> {
        self.lock().snapshot.last_turn.as_ref().map(|last| last.turn)
    }

    pub(crate) fn activity(&self) -> TurnActivity {
        self.lock().activity
    }

    pub(crate) fn set_activity(&self, activity: TurnActivity) {
        self.lock().activity = activity;
    }

    /// Marks a running turn as interrupted. Returns whether one was running.
    pub(crate) fn interrupt_turn(&self) -> bool {
        let status = &mut self.lock().snapshot.status;
        let SessionStatus::Running(turn) = *status else { return false };
        *status = SessionStatus::Interrupted(turn);
        true
    }

    /// The files that the session's turns produced.
    pub(crate) fn files(&self) -> Vec<SessionFile> {
        let files = Arc::clone(&self.lock().assets.files);
        files.values().cloned().collect()
    }

    /// Whether a turn of the session produced this file.
    pub(crate) fn has_file(&self, file: &SessionFile) -> bool {
        self.lock().assets.files.contains_key(&(file.source, file.id.clone()))
    }

    /// The session's artifacts. Expired ones are left out, even if their removal is not recorded yet.
    pub(crate) fn artifacts(&self, options: &ArtifactOptions) -> Arc<[Arc<Artifact>]> {
        let state = self.lock();
        let SessionAssets { view, last_change, .. } = &state.assets;
        let is_idle = matches!(state.snapshot.status, SessionStatus::Idle);
        if is_idle && options.are_expired(*last_change, SystemClock.timestamp()) {
            return Arc::default();
        }
        Arc::clone(view.artifacts())
    }

    /// The contents of all artifacts that have one.
    pub(crate) fn artifact_contents(&self) -> Vec<ArtifactContent> {
        let artifacts = Arc::clone(self.lock().assets.view.artifacts());
        artifacts.iter().filter_map(|artifact| artifact.content.clone()).collect()
    }

    /// Remembers, in memory, that this turn produced no files.
    pub(crate) fn mark_no_outputs(&self, turn: TurnId) {
        self.lock().turn_without_outputs = Some(turn);
    }

    /// Whether this turn is known to have produced no files.
    pub(crate) fn has_no_outputs(&self, turn: TurnId) -> bool {
        self.lock().turn_without_outputs == Some(turn)
    }

    /// Keeps the end of a turn until it is reported.
    pub(crate) fn hold_turn_end(&self, turn: &FinishedTurn) {
        self.lock().held_turn_end = Some(Box::new(turn.clone()));
    }

    /// Shows the turn's end that is held back, if there is one.
    pub(crate) fn release_turn_end(&self) {
        self.lock().release_turn_end();
    }

    /// Derives everything from a loaded or returned conversation.
    pub(crate) fn observe(&self, state: &SessionState, events: u64, activity: TurnActivity) {
        let status = match (state.turn(), activity) {
            (None, _) => SessionStatus::Idle,
            (Some(turn), _) if next(state) == Step::AwaitAction => SessionStatus::AwaitingApproval(turn.id()),
            (Some(turn), TurnActivity::Active) => SessionStatus::Running(turn.id()),
            (Some(turn), TurnActivity::Idle) => SessionStatus::Interrupted(turn.id()),
        };
        let snapshot = SessionSnapshot {
            events,
            status,
            approvals: state.approvals(),
            pending_actions: state.pending_actions(),
            active_skills: state.view().active_skills().to_vec(),
            grants: state.view().grants().cloned().collect(),
            queue: state.queue().map(|queued| queued.id).collect(),
            last_turn: state.last_turn().cloned(),
            usage: *state.usage(),
            last_text: state.last_text(),
            model: state.profile().and_then(|profile| profile.model.clone()),
        };
        self.lock().snapshot = snapshot;
        self.set_assets(state);
    }

    /// Updates the calls that wait for an action, and whether the turn runs or waits.
    pub(crate) fn set_actions(&self, state: &SessionState) {
        let mut projection = self.lock();
        let snapshot = &mut projection.snapshot;
        snapshot.approvals = state.approvals();
        snapshot.pending_actions = state.pending_actions();
        match state.turn() {
            Some(turn) if next(state) == Step::AwaitAction => {
                snapshot.status = SessionStatus::AwaitingApproval(turn.id());
            }
            Some(turn) => snapshot.status = SessionStatus::Running(turn.id()),
            None => {}
        }
    }

    pub(crate) fn set_assets(&self, state: &SessionState) {
        self.lock().assets = SessionAssets {
            view: state.view().clone(),
            last_change: state.last_event_at(),
            files: state.shared_files(),
        };
    }

    /// Applies one recorded event. `holds_turn_ends`: the end of a turn is shown later, by
    /// [`SessionProjection::release_turn_end`].
    pub(crate) fn on_recorded(&self, seq: u64, event: &Event, holds_turn_ends: bool) {
        let mut state = self.lock();
        let snapshot = &mut state.snapshot;
        snapshot.events = seq.saturating_add(1);
        match &event.kind {
            EventKind::Queued { id, .. } => snapshot.queue.push(*id),
            EventKind::Unqueued { id } => snapshot.queue.retain(|queued| queued != id),
            EventKind::TurnStarted { turn, queued, .. } => {
                snapshot.queue.retain(|waiting| Some(*waiting) != *queued);
                snapshot.status = SessionStatus::Running(*turn);
            }
            EventKind::ModelChanged { to, .. } => snapshot.model = Some(to.clone()),
            EventKind::ModelAnswered { response, .. } => {
                snapshot.last_text = Message::assistant(response.content.clone()).text();
            }
            EventKind::TurnFinished { .. } if !holds_turn_ends => state.release_turn_end(),
            _ => {}
        }
    }
}

fn redact_input(redactor: &Redactor, call: &mut ToolCall) {
    if let Cow::Owned(input) = redact_json(redactor, call.input.get())
        && let Ok(input) = RawValue::from_string(input)
    {
        call.input = input.into();
    }
}

impl ProjectionState {
    fn release_turn_end(&mut self) {
        if let Some(last) = self.held_turn_end.take() {
            self.snapshot.last_turn = Some(*last);
            self.snapshot.status = SessionStatus::Idle;
            self.snapshot.approvals.clear();
            self.snapshot.pending_actions.clear();
        }
    }
}

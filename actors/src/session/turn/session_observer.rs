//! Receives the events and previews of a conversation, and passes them to the projection, the metrics, the audit log and
//! the subscribers.
//!
//! State: that of these four, in memory. It lasts across restarts of the session's actor.

use std::sync::Arc;

use conjure_base::Redactor;
use conjure_conversation::{
    ConversationObserver, Event, FinishedTurn, ModelEvent, SessionState, ToolProgress,
};
use conjure_journal::SessionKey;
use conjure_sandbox::Executor;

use super::event_hub::{EventHub, RingLimits};
use crate::metrics::{RuntimeMetrics, SessionMetrics};
use crate::session::log::audit::AuditLog;
use crate::session::log::session_projection::{SessionProjection, TurnActivity};

/// The observer of one session's conversation.
pub(crate) struct SessionObserver {
    key: Arc<SessionKey>,
    pub(crate) hub: Arc<EventHub>,
    pub(crate) projection: SessionProjection,
    audit: AuditLog,
    metrics: SessionMetrics,
}

impl SessionObserver {
    pub(crate) fn new(key: Arc<SessionKey>, metrics: &RuntimeMetrics, limits: RingLimits) -> Self {
        Self {
            hub: Arc::new(EventHub::new(limits)),
            projection: SessionProjection::default(),
            audit: AuditLog::with_metrics(metrics.clone()),
            metrics: SessionMetrics::new(metrics, &key.tenant),
            key,
        }
    }

    /// Handles the load of a conversation with this many events from the journal.
    pub(crate) fn on_loaded(&self, events: u64, state: &SessionState) {
        self.hub.reset_to(events);
        self.audit.on_loaded(state);
    }

    /// Passes the session's new components to the audit log, which then emits the entries that it held back.
    pub(crate) fn on_components(&self, redactor: &Redactor, executor: Option<&dyn Executor>) {
        self.audit.set_facts(&self.key, redactor, executor);
    }

    /// Derives the projection from this state of the conversation, and wakes the subscribers.
    pub(crate) fn observe(&self, state: &SessionState, events: u64, activity: TurnActivity) {
        self.projection.observe(state, events, activity);
        self.hub.notify();
    }

    /// Sets whether a task owns the conversation, and wakes the subscribers.
    pub(crate) fn set_turn_activity(&self, activity: TurnActivity) {
        self.projection.set_activity(activity);
        self.hub.notify();
    }

    /// Reports a turn's end that is held back, if there is one, and reports later ends at once again.
    pub(crate) fn release_turn_end(&self) {
        self.projection.release_turn_end();
        self.hub.release_turn_ends();
    }
}

impl ConversationObserver for SessionObserver {
    fn on_turn_finished(&self, turn: &FinishedTurn) {
        self.projection.hold_turn_end(turn);
    }

    fn on_assets_changed(&self, state: &SessionState) {
        self.projection.set_assets(state);
    }

    fn on_actions_changed(&self, state: &SessionState) {
        self.projection.set_actions(state);
    }

    fn on_recorded(&self, seq: u64, event: &Event) {
        self.projection.on_recorded(seq, event, self.hub.defers_turn_ends());
        self.metrics.on_recorded(event);
        self.audit.on_recorded(&self.key, event);
        self.hub.on_recorded(seq, event);
    }

    fn on_preview(&self, event: &ModelEvent) {
        self.hub.on_preview(event);
    }

    fn on_tool_progress(&self, progress: &ToolProgress) {
        self.hub.on_tool_progress(progress);
    }
}

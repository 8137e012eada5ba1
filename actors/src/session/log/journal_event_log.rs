//! The journal as the event log of a session. It appends the conversation's events under the epoch of the actor's
//! lease.
//!
//! State: none. Acknowledged events are in the journal. An append under a stale epoch means that another process took
//! the session over, which is final. A failure of the journal is a value; the conversation is loaded again afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};
use conjure_conversation::{
    Command, CommandKind, EVENT_FORMAT, Event, EventLog, EventLogError, Message, SessionOverview,
    SessionProfile, SessionState, apply, decide,
};
use conjure_journal::{
    AppendBatch, CounterIncrement, Epoch, JournalError, NewEvent, PageLimit, RecordedEvent, SessionKey,
    SessionRow,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::session_row::to_row;
use crate::journal::{JournalCallError, JournalHandle};
use crate::metrics::names;
use crate::session::error::SessionError;
use crate::tenants::{LogGuard, Spend, TenantAccount, is_undone};

/// The kind of a conversation's events in the journal.
pub const EVENT_KIND: &str = "conversation";

/// How long an append is retried while the journal is busy. A result that is not recorded would be lost.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest duration that is measured. A longer append is recorded with this duration.
const LONGEST_APPEND: Duration = Duration::from_secs(3_600);

/// The first pause between two attempts. It doubles after each one.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The event log of one session under one lease.
#[derive(Debug, Clone)]
pub struct JournalEventLog {
    journal: JournalHandle,
    key: Arc<SessionKey>,
    epoch: Epoch,
    /// Charges the tenant for the recorded responses; `None`: no tenant is charged.
    payer: Option<Arc<LogGuard>>,
}

impl JournalEventLog {
    /// The event log of this session, for the holder of the lease with this `epoch`.
    #[must_use]
    pub const fn new(journal: JournalHandle, key: Arc<SessionKey>, epoch: Epoch) -> Self {
        Self { journal, key, epoch, payer: None }
    }

    /// Makes the event log charge this account for the responses that it records.
    pub(crate) fn with_account(mut self, account: Arc<TenantAccount>) -> Self {
        self.payer = Some(Arc::new(LogGuard { account, session: self.key.session }));
        self
    }

    /// A page of events, starting with the sequence number `from`, and the number of all events.
    pub(crate) async fn page(
        journal: &JournalHandle,
        key: &SessionKey,
        from: u64,
        limit: PageLimit,
    ) -> Result<(Vec<Event>, u64), EventLogError> {
        let page = journal.call(|journal| journal.read(key, from, limit)).await.map_err(to_log_error)?;
        let events = page.events.iter().map(|recorded| read(key, recorded)).collect::<Result<_, _>>()?;
        Ok((events, page.total))
    }
}

/// Counts the events of an append, and records its duration, as metrics.
fn record_append(count: u64, took: Duration) {
    metrics::counter!(names::JOURNAL_EVENTS).increment(count);
    metrics::histogram!(names::JOURNAL_APPEND_DURATION).record(took);
}

/// The events in the journal's form.
pub(crate) fn encoded(events: &[Event]) -> Result<Vec<NewEvent>, EventLogError> {
    events
        .iter()
        .map(|event| Ok(NewEvent::new(EVENT_KIND, EVENT_FORMAT, serde_json::to_vec(event)?)))
        .collect::<Result<Vec<_>, serde_json::Error>>()
        .map_err(|error| EventLogError::Failed { reason: format!("cannot write an event: {error}") })
}

fn read(key: &SessionKey, recorded: &RecordedEvent) -> Result<Event, EventLogError> {
    let failed = |reason: String| EventLogError::Failed {
        reason: format!("the event {} of the session {key} cannot be read: {reason}", recorded.seq),
    };
    if recorded.kind != EVENT_KIND {
        return Err(failed(format!("its kind is `{}`, not `{EVENT_KIND}`", recorded.kind)));
    }
    serde_json::from_slice(&recorded.body).map_err(|error| failed(error.to_string()))
}

/// Whether the journal certainly changed nothing and may accept the same append soon.
const fn is_busy(error: &JournalError) -> bool {
    matches!(error, JournalError::Overloaded { .. } | JournalError::Locked { .. })
}

/// Whether the events are certainly not recorded and never will be.
const fn is_refused(failure: &JournalCallError) -> bool {
    let JournalCallError::Journal(error) = failure else { return true };
    is_undone(error)
        || matches!(
            error,
            JournalError::NotFound { .. }
                | JournalError::StaleEpoch { .. }
                | JournalError::LeaseHeld { .. }
                | JournalError::Conflict { .. }
        )
}

/// The charge for an append. If it is dropped while the journal certainly does not have the events, the amount becomes a
/// pending charge of the account. The model's service has been paid for the response nevertheless.
struct AppendCharge<'a> {
    payer: Option<&'a LogGuard>,
    amount: Spend,
    charges: Vec<CounterIncrement>,
    /// Whether the journal has the events, or may have them.
    is_submitted: AtomicBool,
}

impl Drop for AppendCharge<'_> {
    fn drop(&mut self) {
        if let (Some(payer), false) = (self.payer, *self.is_submitted.get_mut())
            && !self.charges.is_empty()
        {
            payer.account.add_pending_charge(payer.session, self.amount, std::mem::take(&mut self.charges));
        }
    }
}

/// The error for the conversation.
pub(crate) fn to_log_error(failure: JournalCallError) -> EventLogError {
    match failure {
        JournalCallError::Journal(JournalError::Conflict { expected, found }) => {
            EventLogError::Conflict { expected, found }
        }
        JournalCallError::Journal(
            error @ (JournalError::StaleEpoch { .. }
            | JournalError::LeaseHeld { .. }
            | JournalError::NotFound { .. }),
        ) => EventLogError::Fenced { reason: error.to_string() },
        other => EventLogError::Failed { reason: other.to_string() },
    }
}

impl JournalEventLog {
    /// Appends events, the session's row and the charges in one transaction. Tries again while the journal is busy.
    async fn record(
        &self,
        expected_seq: u64,
        events: &[Event],
        row: Option<SessionRow>,
    ) -> Result<u64, EventLogError> {
        let retry_until = SystemClock.deadline(BUSY_TIMEOUT);
        let mut pause = FIRST_PAUSE;
        let count = events.len() as u64;
        let measured_until = SystemClock.deadline(LONGEST_APPEND);
        let payer = self.payer.as_deref();
        let (amount, charges) = match payer {
            Some(payer) => payer.account.charges(payer.session, events),
            None => Default::default(),
        };
        let charge = AppendCharge { payer, amount, charges, is_submitted: AtomicBool::new(false) };
        let recorded = loop {
            let events = encoded(events)?;
            let append = |journal: &dyn conjure_journal::Journal| {
                charge.is_submitted.store(true, Ordering::Relaxed);
                let batch = AppendBatch { events, increments: charge.charges.clone(), row: row.clone() };
                journal.append_batch(&self.key, expected_seq, self.epoch, batch)
            };
            let answer = self.journal.call(append).await;
            if answer.as_ref().is_err_and(is_refused) {
                charge.is_submitted.store(false, Ordering::Relaxed);
            }
            match answer {
                Err(JournalCallError::Journal(error))
                    if is_busy(&error) && SystemClock.remaining(retry_until) > pause =>
                {
                    SystemClock.sleep_until(SystemClock.deadline(pause)).await;
                    pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
                }
                answer => {
                    if answer.is_ok() {
                        record_append(
                            count,
                            LONGEST_APPEND.saturating_sub(SystemClock.remaining(measured_until)),
                        );
                    }
                    break answer.map_err(to_log_error)?;
                }
            }
        };
        if let Some(payer) = payer
            && !charge.charges.is_empty()
        {
            payer.account.on_charged(payer.session, amount);
        }
        Ok(recorded)
    }
}

impl EventLog for JournalEventLog {
    fn append<'a>(
        &'a self,
        expected_seq: u64,
        events: &'a [Event],
    ) -> BoxFuture<'a, Result<u64, EventLogError>> {
        self.record(expected_seq, events, None).boxed()
    }

    fn append_after<'a>(
        &'a self,
        state: &SessionState,
        expected_seq: u64,
        events: &'a [Event],
    ) -> BoxFuture<'a, Result<u64, EventLogError>> {
        let row = to_row(&SessionOverview::after(state, events));
        self.record(expected_seq, events, Some(row)).boxed()
    }

    fn load(&self) -> BoxFuture<'_, Result<Vec<Event>, EventLogError>> {
        async move {
            let mut events = Vec::new();
            loop {
                let from = events.len() as u64;
                let (page, total) = Self::page(&self.journal, &self.key, from, PageLimit::default()).await?;
                let is_over = page.is_empty();
                events.extend(page);
                if is_over || events.len() as u64 >= total {
                    return Ok(events);
                }
            }
        }
        .boxed()
    }
}

/// The first events of a session with this profile and history.
pub(crate) fn first_events(
    profile: SessionProfile,
    history: Vec<Message>,
) -> Result<Vec<Event>, SessionError> {
    let mut begin = vec![CommandKind::Open { profile: Box::new(profile) }];
    if !history.is_empty() {
        begin.push(CommandKind::Import { messages: history, container: None });
    }
    let mut state = SessionState::default();
    let mut events: Vec<Event> = Vec::new();
    for kind in begin {
        for event in decide(&state, Command { at: SystemClock.timestamp(), kind })? {
            apply(&mut state, &event);
            events.push(event);
        }
    }
    Ok(events)
}

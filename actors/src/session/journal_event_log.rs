//! The journal as a session's ledger: a conversation's events under the epoch of the lease that this actor holds.
//!
//! It keeps no state: what was acknowledged is in the journal. An append under a stale epoch says that the session was taken
//! over, which is final; a journal that fails is a value, after which the conversation is loaded anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};
use conjure_conversation::{EVENT_FORMAT, Event, EventLog, EventLogError};
use conjure_journal::{
    CounterIncrement, Epoch, JournalError, NewEvent, PageLimit, RecordedEvent, SessionKey,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::journal::{JournalCallError, JournalHandle};
use crate::metrics::names;
use crate::tenants::{LogGuard, Spend, TenantAccount, is_undone};

/// What the events of conversations are called in the journal.
pub const EVENT_KIND: &str = "conversation";

/// For how long an append is tried again that a busy journal has refused: a result that is not recorded is lost.
const BUSY: Duration = Duration::from_secs(5);

/// No append is measured beyond this.
const LONGEST_APPEND: Duration = Duration::from_secs(3_600);

/// When for the first time; twice as long after each refusal, up to the other.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The ledger of one session under one lease.
#[derive(Debug, Clone)]
pub struct JournalEventLog {
    journal: JournalHandle,
    key: Arc<SessionKey>,
    epoch: Epoch,
    /// Who pays for what is recorded; `None`: nobody.
    payer: Option<Arc<LogGuard>>,
}

impl JournalEventLog {
    /// The ledger of this session, for whoever holds the lease of `epoch`.
    #[must_use]
    pub const fn new(journal: JournalHandle, key: Arc<SessionKey>, epoch: Epoch) -> Self {
        Self { journal, key, epoch, payer: None }
    }

    /// The same, which charges this account of the session's tenant for the answers that it records.
    pub(crate) fn with_account(mut self, account: Arc<TenantAccount>) -> Self {
        self.payer = Some(Arc::new(LogGuard { account, session: self.key.session }));
        self
    }

    /// A page of events, from the sequence number `from` on, and how many there are in all.
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

/// So many events are durable, after so long.
fn record_append(count: u64, took: Duration) {
    metrics::counter!(names::JOURNAL_EVENTS).increment(count);
    metrics::histogram!(names::JOURNAL_APPEND_DURATION).record(took);
}

/// Events as the journal has them.
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
        return Err(failed(format!("it is of kind `{}`, which is no conversation's", recorded.kind)));
    }
    serde_json::from_slice(&recorded.body).map_err(|error| failed(error.to_string()))
}

/// Whether the journal surely did nothing, and may do the same in a moment.
const fn is_busy(error: &JournalError) -> bool {
    matches!(error, JournalError::Overloaded { .. } | JournalError::Locked { .. })
}

/// Whether the events were surely not recorded, and will not be.
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

/// What an append charges. Dropped while the journal surely has nothing of it, it is owed: what was said was said.
struct AppendCharge<'a> {
    payer: Option<&'a LogGuard>,
    amount: Spend,
    charges: Vec<CounterIncrement>,
    /// Whether the journal has it, or may have.
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

/// What a conversation is told of the journal's failures.
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

impl EventLog for JournalEventLog {
    fn append<'a>(
        &'a self,
        expected_seq: u64,
        events: &'a [Event],
    ) -> BoxFuture<'a, Result<u64, EventLogError>> {
        async move {
            let retry_until = SystemClock.deadline(BUSY);
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
                    let charges = charge.charges.clone();
                    journal.append_with_counters(&self.key, expected_seq, self.epoch, events, charges)
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
        .boxed()
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

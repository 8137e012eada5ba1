//! The account of a tenant: live sessions, spending, reservations and charges.
//!
//! State: in memory, the sessions that are live here, the reservations of their calls, and the charges of aborted calls
//! until the journal has them. It ends with the process. Spending is in the journal and is read for each call, so
//! charges of other processes count as well.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SessionId, TenantId, Timestamp, lock};
use conjure_conversation::Usage;
use conjure_journal::{CounterIncrement, JournalFuture};
use tokio::sync::watch;

use super::account_registry::AccountRef;
use super::budget::{Allowance, Period, Spend};
use super::budget_check::{BudgetState, ShortfallReason};
use super::counter_names::counter_name;
use super::pending_charges::{PendingCharges, is_undone};
use super::quota::{Quota, QuotaExceeded, Spent, TenantLimits, TenantStatus};
use crate::journal::{JournalCallError, JournalHandle};

/// How long a call waits for the reservations of others. The limits of its turn may end it sooner.
const RESERVATION_TIMEOUT: Duration = Duration::from_secs(600);

/// The account of a tenant in this process.
pub(crate) struct TenantAccount {
    pub(super) account_ref: AccountRef<TenantAccount>,
    journal: JournalHandle,
    pub(super) clock: Arc<dyn Clock>,
    state: Mutex<AccountState>,
    /// Held while the tenant's sessions are counted and one more is recorded.
    record_lock: Arc<tokio::sync::Mutex<()>>,
    /// Changed after each release, charge or change of the limits.
    changed: watch::Sender<u64>,
}

pub(super) struct AccountState {
    /// The tenant's limits.
    pub(super) limits: Arc<TenantLimits>,
    /// The live sessions, and how many holders each has: during a restart a session has two.
    live: HashMap<SessionId, u32>,
    pub(super) budget: BudgetState,
    pub(super) pending: PendingCharges,
}

/// Whether to wait for the reservations of others.
#[derive(Debug, Clone, Copy)]
enum WaitPolicy {
    Until(Deadline),
    Not,
}

/// Why a call may not start.
#[derive(Debug)]
pub(crate) enum ReserveError {
    /// It does not fit in the budget.
    QuotaExceeded(QuotaExceeded),
    /// The reservations of others were not released in time.
    TimedOut,
    /// The spending cannot be read.
    Journal(JournalCallError),
}

impl TenantAccount {
    pub(super) fn new(
        account_ref: AccountRef<TenantAccount>,
        limits: Arc<TenantLimits>,
        journal: JournalHandle,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let state = AccountState {
            limits,
            live: HashMap::new(),
            budget: BudgetState::default(),
            pending: PendingCharges::default(),
        };
        let state = Mutex::new(state);
        Self {
            account_ref,
            journal,
            clock,
            state,
            record_lock: Arc::default(),
            changed: watch::Sender::new(0),
        }
    }

    const fn tenant(&self) -> &TenantId {
        self.account_ref.tenant()
    }

    pub(crate) fn limits(&self) -> Arc<TenantLimits> {
        Arc::clone(&self.lock().limits)
    }

    pub(super) const fn record_lock(&self) -> &Arc<tokio::sync::Mutex<()>> {
        &self.record_lock
    }

    pub(super) fn set_limits(&self, limits: Arc<TenantLimits>) {
        self.lock().limits = limits;
        self.notify();
    }

    /// Counts a session as live until the guard is dropped.
    pub(crate) fn start_session(
        self: &Arc<Self>,
        session: SessionId,
    ) -> Result<LiveSessionGuard, QuotaExceeded> {
        let mut state = self.lock();
        let (limit, count) = (state.limits.live_sessions, state.live.len() as u64);
        if !state.live.contains_key(&session) && count >= limit {
            let current = count.saturating_add(1);
            return Err(QuotaExceeded::new(self.tenant().clone(), Quota::LiveSessions, limit, current));
        }
        *state.live.entry(session).or_default() += 1;
        drop(state);
        Ok(LiveSessionGuard { account: Arc::clone(self), session })
    }

    /// Checks whether a call that sends this many bytes would fit now. It waits only for the journal and ignores the
    /// reservations of others, which may be released.
    pub(crate) async fn check(&self, session: SessionId, bytes: u64) -> Result<(), ReserveError> {
        self.admit(session, bytes, WaitPolicy::Not, |_, _, _| ()).await
    }

    /// Reserves what a call that sends this many bytes may cost. If other calls have reserved what is left, waits for their
    /// release. [`Reservation`](super::reservation::Reservation) releases the reservation.
    pub(super) async fn reserve(&self, session: SessionId, bytes: u64) -> Result<(), ReserveError> {
        let reserve = |budget: &mut BudgetState, amount, at| budget.reserve(session, amount, at);
        let wait = WaitPolicy::Until(self.clock.deadline(RESERVATION_TIMEOUT));
        self.admit(session, bytes, wait, reserve).await
    }

    async fn admit(
        &self,
        session: SessionId,
        bytes: u64,
        waiting: WaitPolicy,
        take: impl Fn(&mut BudgetState, Spend, Timestamp),
    ) -> Result<(), ReserveError> {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let at = self.clock.timestamp();
            let (mark, limits) = {
                let mut state = self.lock();
                let limits = Arc::clone(&state.limits);
                if limits.budget.allowances().is_empty() {
                    take(&mut state.budget, Spend::default(), at);
                    return Ok(());
                }
                (state.pending.oldest_unacknowledged().is_none().then(|| state.budget.mark()), limits)
            };
            let Some(mark) = mark else {
                self.flush_and_wait().await.map_err(ReserveError::Journal)?;
                continue;
            };
            let spent = self.spent(limits.budget.allowances(), at).await.map_err(ReserveError::Journal)?;
            let amount = limits.budget.estimate(bytes);
            let shortfall = {
                let mut state = self.lock();
                if !Arc::ptr_eq(&limits, &state.limits) {
                    continue;
                }
                match state.budget.fits(session, amount, limits.budget.allowances(), &spent, mark) {
                    Ok(()) => {
                        take(&mut state.budget, amount, at);
                        return Ok(());
                    }
                    Err(shortfall) => shortfall,
                }
            };
            match shortfall.reason {
                ShortfallReason::ChangedWhileReading => {}
                ShortfallReason::Spent => {
                    let (resource, period, limit) = shortfall.allowance.parts();
                    let quota = Quota::of(resource, period);
                    let exceeded =
                        QuotaExceeded::new(self.tenant().clone(), quota, limit, shortfall.exclusive_total);
                    return Err(ReserveError::QuotaExceeded(exceeded));
                }
                ShortfallReason::ReservedByOthers => {
                    let WaitPolicy::Until(until) = waiting else { return Err(ReserveError::TimedOut) };
                    tokio::select! {
                        biased;
                        // `self` holds the sender, so waiting cannot fail.
                        _ = changed.changed() => {}
                        () = self.clock.sleep_until(until) => return Err(ReserveError::TimedOut),
                    }
                }
            }
        }
    }

    /// A function that submits charges if a journal is open.
    pub(super) fn charge_fn(&self) -> impl Fn(Vec<CounterIncrement>) -> Option<JournalFuture<()>> {
        let journal = self.journal.open();
        move |charges| Some(journal.as_ref()?.increment_counters(self.tenant(), charges))
    }

    /// Waits until the charges of aborted calls are in the journal.
    async fn flush_and_wait(&self) -> Result<(), JournalCallError> {
        let mut is_second = false;
        loop {
            let first = {
                let mut state = self.lock();
                state.pending.flush(&self.charge_fn());
                state.pending.oldest_unacknowledged()
            };
            match first {
                None => {
                    self.account_ref.release_if_settled(Self::flush_pending);
                    return Ok(());
                }
                Some(None) => drop(self.journal.journal().await?),
                Some(Some(answer)) => match answer.await {
                    Err(error) if is_undone(&error) && is_second => return Err(error.into()),
                    Err(error) => is_second |= is_undone(&error),
                    Ok(()) => {}
                },
            }
        }
    }

    async fn spent(&self, allowances: &[Allowance], at: Timestamp) -> Result<Vec<u64>, JournalCallError> {
        let names = allowances.iter().map(|allowance| {
            let (resource, period, _) = allowance.parts();
            counter_name(resource, period, at)
        });
        let names = names.collect();
        self.journal.call(|journal| journal.counters(self.tenant(), names)).await
    }

    /// Lets the account end with its sessions, unless charges are pending.
    pub(super) fn release_if_settled(&self) {
        self.account_ref.release_if_settled(Self::flush_pending);
    }

    /// Drops the pending charges because the tenant is deleted.
    pub(super) fn discard_pending(&self) {
        self.lock().pending.clear();
    }

    /// Submits again the charges that the journal certainly did not carry out. Returns whether no charge is pending.
    pub(super) fn flush_pending(&self) -> bool {
        let charge_fn = self.charge_fn();
        let mut state = self.lock();
        state.pending.flush(&charge_fn);
        state.pending.oldest_unacknowledged().is_none()
    }

    pub(super) fn settle(&self, session: SessionId, usage: &Usage) {
        let mut state = self.lock();
        let amount = state.limits.budget.amount(usage);
        state.budget.settle(session, amount);
        drop(state);
        self.notify();
    }

    pub(super) fn release(&self, session: SessionId) {
        if self.lock().budget.release(session) {
            self.notify();
        }
    }

    pub(super) fn notify(&self) {
        self.changed.send_modify(|changed| *changed = changed.wrapping_add(1));
    }

    /// The status of the tenant.
    pub(super) async fn status(&self) -> Result<TenantStatus, JournalCallError> {
        if let Err(error) = self.flush_and_wait().await {
            tracing::debug!(tenant = %self.tenant(), %error, "pending charges are not recorded yet");
        }
        let (allowances, live, reserved) = {
            let state = self.lock();
            (state.limits.budget.allowances().to_vec(), state.live.len() as u64, state.budget.reserved())
        };
        let periods = [Period::Total, Period::Day, Period::Month];
        let all: Vec<Allowance> = periods
            .map(|period| [Allowance::Tokens { period, limit: 0 }, Allowance::Cost { period, limit: 0 }])
            .concat();
        let at = self.clock.timestamp();
        let counts = self.spent(&all, at).await?;
        let recorded = self.journal.call(|journal| journal.session_count(self.tenant())).await?;
        let limit = |allowance: &Allowance| {
            let (resource, period, _) = allowance.parts();
            let of = |other: &&Allowance| {
                let (other, when, _) = other.parts();
                (other, when) == (resource, period)
            };
            allowances.iter().find(of).map(|known| known.parts().2)
        };
        let spent = all.iter().zip(counts).map(|(allowance, used)| {
            let (resource, period, _) = allowance.parts();
            let used =
                used.saturating_add(self.lock().pending.amount_for(&counter_name(resource, period, at)));
            Spent { quota: Quota::of(resource, period), used, limit: limit(allowance) }
        });
        Ok(TenantStatus {
            live_sessions: live,
            recorded_sessions: recorded,
            spent: spent.collect(),
            reserved_tokens: reserved.tokens,
            reserved_cost_micros: reserved.micros,
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, AccountState> {
        // A poisoned lock is safe, because every change leaves the state consistent.
        lock(&self.state)
    }
}

/// Counts a session as live until it is dropped.
#[must_use = "dropping it takes the session off the account"]
pub(crate) struct LiveSessionGuard {
    account: Arc<TenantAccount>,
    session: SessionId,
}

impl Drop for LiveSessionGuard {
    fn drop(&mut self) {
        let mut state = self.account.lock();
        if let Some(users) = state.live.get_mut(&self.session) {
            *users -= 1;
            if *users == 0 {
                state.live.remove(&self.session);
            }
        }
    }
}

/// Lets a session's event log charge the account. Dropping it releases what is reserved for a response that was not
/// recorded.
pub(crate) struct LogGuard {
    pub(crate) account: Arc<TenantAccount>,
    pub(crate) session: SessionId,
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        self.account.release(self.session);
    }
}

impl fmt::Debug for LogGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogGuard").field(&self.session).finish()
    }
}

impl fmt::Debug for TenantAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantAccount").field("tenant", self.tenant()).finish_non_exhaustive()
    }
}

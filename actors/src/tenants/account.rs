//! The account of a tenant: who is live, and what is spent, reserved and charged.
//!
//! State: in memory, the sessions that are live here, what their calls have reserved, and what calls that were broken off have come to
//! until the journal has it; gone with the process. What was spent is in the journal, and read anew for each call, so that what other
//! processes charge counts, too.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SessionId, TenantId, Timestamp};
use conjure_conversation::{Event, ModelError, ModelEvent, Usage};
use conjure_journal::{Charge, Reply};
use tokio::sync::watch;

use super::budget::{Allowance, Amount, Budget, Good, Period};
use super::calendar::counter;
use super::debts::{Debts, is_undone};
use super::heard::{Heard, Used};
use super::purse::{Purse, Why};
use super::quota::{Quota, QuotaExceeded};
use super::tenancy::{Entry, Spent, Standing};
use super::terms::Terms;
use crate::journal::{CallFailure, JournalAccess};

/// How long a call waits for what others have reserved. Its turn's own limits may end it sooner.
const RETURNED_WITHIN: Duration = Duration::from_secs(600);

/// The account of a tenant, in this process.
pub(crate) struct Account {
    entry: Entry,
    journal: JournalAccess,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Held by whoever counts the tenant's sessions and records one more.
    recording: Arc<tokio::sync::Mutex<()>>,
    /// Changed when something was given back, charged, or allowed.
    changed: watch::Sender<u64>,
}

struct State {
    /// What the tenant may have.
    terms: Arc<Terms>,
    /// The sessions that are live; how many have a part in it: one that is about to start again is the same session.
    live: HashMap<SessionId, u32>,
    purse: Purse,
    debts: Debts,
}

/// Whether what others have reserved is waited for.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    Until(Deadline),
    Not,
}

/// Why a call may not begin.
#[derive(Debug)]
pub(crate) enum NotReserved {
    /// It does not fit.
    Exceeded(QuotaExceeded),
    /// What others have reserved is not back, or not in time.
    Waited,
    /// What was spent is not known.
    Journal(CallFailure),
}

impl Account {
    pub(super) fn new(
        entry: Entry,
        terms: Arc<Terms>,
        journal: JournalAccess,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let state = State { terms, live: HashMap::new(), purse: Purse::default(), debts: Debts::default() };
        let state = Mutex::new(state);
        Self { entry, journal, clock, state, recording: Arc::default(), changed: watch::Sender::new(0) }
    }

    const fn tenant(&self) -> &TenantId {
        self.entry.tenant()
    }

    pub(crate) fn terms(&self) -> Arc<Terms> {
        Arc::clone(&self.lock().terms)
    }

    pub(super) const fn recording(&self) -> &Arc<tokio::sync::Mutex<()>> {
        &self.recording
    }

    pub(super) fn set_terms(&self, terms: Arc<Terms>) {
        self.lock().terms = terms;
        self.tell();
    }

    /// A session is live from now on, until what is returned is dropped.
    pub(crate) fn enter(self: &Arc<Self>, session: SessionId) -> Result<Present, QuotaExceeded> {
        let mut state = self.lock();
        let (limit, count) = (state.terms.live_sessions, state.live.len() as u64);
        if !state.live.contains_key(&session) && count >= limit {
            let current = count.saturating_add(1);
            return Err(QuotaExceeded::new(self.tenant().clone(), Quota::LiveSessions, limit, current));
        }
        *state.live.entry(session).or_default() += 1;
        drop(state);
        Ok(Present { account: Arc::clone(self), session })
    }

    /// Whether a call that sends so many bytes would fit now. Waits for the journal alone: what others have reserved may come back.
    pub(crate) async fn check(&self, session: SessionId, bytes: u64) -> Result<(), NotReserved> {
        self.admit(session, bytes, Waiting::Not, |_, _, _| ()).await
    }

    /// Reserves what a call may come to that sends so many bytes. Waits for what others have reserved, where that may come
    /// back.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        session: SessionId,
        bytes: u64,
    ) -> Result<Reservation, NotReserved> {
        let reserve = |purse: &mut Purse, amount, at| purse.reserve(session, amount, at);
        let waiting = Waiting::Until(self.clock.deadline(RETURNED_WITHIN));
        self.admit(session, bytes, waiting, reserve).await?;
        let (account, input) = (Arc::clone(self), Budget::tokens_sent(bytes));
        Ok(Reservation { account, session, input, heard: Heard::default(), is_settled: false })
    }

    async fn admit(
        &self,
        session: SessionId,
        bytes: u64,
        waiting: Waiting,
        take: impl Fn(&mut Purse, Amount, Timestamp),
    ) -> Result<(), NotReserved> {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let at = self.clock.timestamp();
            let (mark, terms) = {
                let mut state = self.lock();
                let terms = Arc::clone(&state.terms);
                if terms.budget.allowances().is_empty() {
                    take(&mut state.purse, Amount::default(), at);
                    return Ok(());
                }
                (state.debts.first().is_none().then(|| state.purse.mark()), terms)
            };
            let Some(mark) = mark else {
                self.paid().await.map_err(NotReserved::Journal)?;
                continue;
            };
            let spent = self.spent(terms.budget.allowances(), at).await.map_err(NotReserved::Journal)?;
            let amount = terms.budget.estimate(bytes);
            let short = {
                let mut state = self.lock();
                if !Arc::ptr_eq(&terms, &state.terms) {
                    continue;
                }
                match state.purse.fits(session, amount, terms.budget.allowances(), &spent, mark) {
                    Ok(()) => {
                        take(&mut state.purse, amount, at);
                        return Ok(());
                    }
                    Err(short) => short,
                }
            };
            match short.why {
                Why::Moved => {}
                Why::Spent => {
                    let (good, period, most) = short.allowance.parts();
                    let quota = Quota::of(good, period);
                    let exceeded = QuotaExceeded::new(self.tenant().clone(), quota, most, short.alone);
                    return Err(NotReserved::Exceeded(exceeded));
                }
                Why::Reserved => {
                    let Waiting::Until(until) = waiting else { return Err(NotReserved::Waited) };
                    tokio::select! {
                        biased;
                        // The sender is in here.
                        _ = changed.changed() => {}
                        () = self.clock.sleep_until(until) => return Err(NotReserved::Waited),
                    }
                }
            }
        }
    }

    /// Takes charges, where a journal is open.
    fn till(&self) -> impl Fn(Vec<Charge>) -> Option<Reply<()>> {
        let journal = self.journal.open();
        move |charges| Some(journal.as_ref()?.charge(self.tenant(), charges))
    }

    /// Waits until what calls that were broken off have come to is in the journal.
    async fn paid(&self) -> Result<(), CallFailure> {
        let mut is_second = false;
        loop {
            let first = {
                let mut state = self.lock();
                state.debts.settle(&self.till());
                state.debts.first()
            };
            match first {
                None => {
                    self.entry.let_go();
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

    async fn spent(&self, allowances: &[Allowance], at: Timestamp) -> Result<Vec<u64>, CallFailure> {
        let names = allowances.iter().map(|allowance| {
            let (good, period, _) = allowance.parts();
            counter(good, period, at)
        });
        let names = names.collect();
        self.journal.call(|journal| journal.counters(self.tenant(), names)).await
    }

    /// What the events of a session are charged with: what their answers and their summaries used.
    pub(crate) fn charges(&self, session: SessionId, events: &[Event]) -> (Amount, Vec<Charge>) {
        let state = self.lock();
        let used = events.iter().filter_map(|event| event.kind.consumed());
        let amounts = used.map(|usage| state.terms.budget.amount(usage));
        let amount = amounts.fold(Amount::default(), Amount::plus);
        // To the periods in which it fitted.
        let at = state.purse.at(session).unwrap_or_else(|| self.clock.timestamp());
        drop(state);
        (amount, charges_of(amount, at))
    }

    /// A call has ended without an answer, and its service may bill this.
    fn broken_off(self: &Arc<Self>, session: SessionId, used: &Used) {
        let state = self.lock();
        let amount = state.terms.budget.part(used);
        let at = state.purse.at(session).unwrap_or_else(|| self.clock.timestamp());
        drop(state);
        self.owe(session, amount, charges_of(amount, at));
    }

    /// What was not, and will not be, charged with an event.
    pub(crate) fn owe(self: &Arc<Self>, session: SessionId, amount: Amount, charges: Vec<Charge>) {
        let till = self.till();
        let mut state = self.lock();
        // What others read just now may have it or not.
        state.purse.settle(session, Amount::default());
        state.purse.charge(session, amount);
        let owes = !charges.is_empty();
        if owes {
            state.debts.owe(charges, &till);
        }
        drop(state);
        if owes {
            // It outlives its sessions until it has paid.
            self.entry.keep(self);
        }
        self.tell();
    }

    /// Nothing holds it any more but its sessions, unless it owes something by now.
    pub(super) fn let_go(&self) {
        self.entry.let_go();
    }

    /// The tenant is gone, and what it owes with it.
    pub(super) fn forget_debts(&self) {
        self.lock().debts.forget();
    }

    /// Submits again what the journal has surely not carried out. Whether nothing is owed any more.
    pub(super) fn settles(&self) -> bool {
        let till = self.till();
        let mut state = self.lock();
        state.debts.settle(&till);
        state.debts.first().is_none()
    }

    /// They were recorded, and charged.
    pub(crate) fn charged(&self, session: SessionId, amount: Amount) {
        self.lock().purse.charge(session, amount);
        self.tell();
    }

    fn settle(&self, session: SessionId, usage: &Usage) {
        let mut state = self.lock();
        let amount = state.terms.budget.amount(usage);
        state.purse.settle(session, amount);
        drop(state);
        self.tell();
    }

    fn release(&self, session: SessionId) {
        if self.lock().purse.release(session) {
            self.tell();
        }
    }

    fn tell(&self) {
        self.changed.send_modify(|changed| *changed = changed.wrapping_add(1));
    }

    /// How the tenant stands.
    pub(super) async fn standing(&self) -> Result<Standing, CallFailure> {
        if let Err(error) = self.paid().await {
            tracing::debug!(tenant = %self.tenant(), %error, "what is owed is not charged yet");
        }
        let (allowances, live, reserved) = {
            let state = self.lock();
            (state.terms.budget.allowances().to_vec(), state.live.len() as u64, state.purse.reserved())
        };
        let periods = [Period::Total, Period::Day, Period::Month];
        let all: Vec<Allowance> = periods
            .map(|period| [Allowance::Tokens { period, most: 0 }, Allowance::Cost { period, most: 0 }])
            .concat();
        let at = self.clock.timestamp();
        let counts = self.spent(&all, at).await?;
        let recorded = self.journal.call(|journal| journal.session_count(self.tenant())).await?;
        let most = |allowance: &Allowance| {
            let (good, period, _) = allowance.parts();
            let of = |other: &&Allowance| {
                let (other, when, _) = other.parts();
                (other, when) == (good, period)
            };
            allowances.iter().find(of).map(|known| known.parts().2)
        };
        let spent = all.iter().zip(counts).map(|(allowance, used)| {
            let (good, period, _) = allowance.parts();
            let used = used.saturating_add(self.lock().debts.owed(&counter(good, period, at)));
            Spent { quota: Quota::of(good, period), used, limit: most(allowance) }
        });
        Ok(Standing {
            live_sessions: live,
            recorded_sessions: recorded,
            spent: spent.collect(),
            reserved_tokens: reserved.tokens,
            reserved_cost_micros: reserved.micros,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That a session is live.
#[must_use = "dropping it takes the session off the account"]
pub(crate) struct Present {
    account: Arc<Account>,
    session: SessionId,
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut state = self.account.lock();
        if let Some(parts) = state.live.get_mut(&self.session) {
            *parts -= 1;
            if *parts == 0 {
                state.live.remove(&self.session);
            }
        }
    }
}

/// What this comes to, in the periods of that moment.
fn charges_of(amount: Amount, at: Timestamp) -> Vec<Charge> {
    let goods = [Good::Tokens, Good::Micros].into_iter().filter(|good| amount.of(*good) > 0);
    let charges = goods.flat_map(|good| {
        [Period::Total, Period::Day, Period::Month]
            .map(|period| Charge::new(counter(good, period, at), amount.of(good)))
    });
    charges.collect()
}

/// What a call of a model may come to. Dropping it gives that back, but for what the call has come to by then, unless an answer came.
pub(super) struct Reservation {
    account: Arc<Account>,
    session: SessionId,
    /// For how many tokens what it sends is taken.
    input: u64,
    heard: Heard,
    /// It is charged when the answer is recorded, or given back with the session's ledger.
    is_settled: bool,
}

impl Reservation {
    /// What the call's stream tells.
    pub(super) fn hear(&mut self, event: &Result<ModelEvent, ModelError>) {
        match event {
            Ok(ModelEvent::Finished(response)) => {
                self.is_settled = true;
                self.account.settle(self.session, &response.usage);
            }
            Ok(event) => self.heard.hear(event),
            Err(_) => self.heard.failed(),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        match self.heard.used(self.input) {
            Some(used) => self.account.broken_off(self.session, &used),
            None => self.account.release(self.session),
        }
    }
}

/// The ledger of a session, which charges the account. With it goes what is reserved for an answer that it did not record.
pub(crate) struct Holder {
    pub(crate) account: Arc<Account>,
    pub(crate) session: SessionId,
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.account.release(self.session);
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Holder").field(&self.session).finish()
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("tenant", self.tenant()).finish_non_exhaustive()
    }
}

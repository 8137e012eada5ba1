//! A gate: waits until the schedule admits, within a deadline, and gives back when what was admitted is over.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock, TenantId};
use metrics::{counter, gauge};
use tokio::sync::oneshot;

use super::party::Party;
use super::schedule::{Asked, Schedule, Ticket};
use super::share::Share;
use crate::metrics::{Level, names};

/// What is told to whoever is refused before anybody was admitted long enough to learn from.
const FIRST_GUESS: Duration = Duration::from_millis(250);

/// No advice is longer, whatever was measured.
const LONGEST_ADVICE: Duration = Duration::from_secs(60);

/// No admission is measured beyond this.
const LONGEST_HOLD: Duration = Duration::from_secs(3_600);

/// Too much is asked for at once. Nothing was begun; the same may be asked again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} of the tenant `{tenant}` are {admitted}, and {waiting} more wait: {}", advice(*retry_after))]
#[non_exhaustive]
pub struct Overloaded {
    /// What was asked for, as the gate is named.
    pub what: &'static str,
    /// Whose share is used up.
    pub tenant: TenantId,
    /// How many of the tenant are at work.
    pub admitted: u32,
    /// How many of the tenant wait.
    pub waiting: usize,
    /// When it may be worth to ask again, from how long those who were admitted before took. `None`: never, the tenant's share
    /// is nothing.
    pub retry_after: Option<Duration>,
}

fn advice(retry_after: Option<Duration>) -> String {
    match retry_after {
        Some(after) => format!("try again in {} ms", after.as_millis()),
        None => "it may have none".to_owned(),
    }
}

/// How full a gate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GateLoad {
    /// How many are admitted at a time.
    pub capacity: u32,
    /// How many are.
    pub admitted: u32,
    /// How many wait.
    pub waiting: usize,
}

/// Admits so many at a time to something that tenants share, each tenant as its [`Share`] says. Cheap to clone: the clones are
/// one gate.
///
/// ```
/// use std::time::Duration;
/// use conjure_actors::admission::{Gate, Share};
/// use conjure_base::{Clock as _, SystemClock, TenantId};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sandboxes = Gate::new("the sandboxes", 64, Share { admitted: 8, ..Share::default() });
/// let tenant = TenantId::new("acme")?;
/// let permit = sandboxes.admit(&tenant, SystemClock.deadline(Duration::from_secs(5))).await?;
/// assert_eq!(sandboxes.load().admitted, 1);
/// drop(permit);
/// assert_eq!(sandboxes.load().admitted, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Gate {
    inner: Arc<Inner>,
}

struct Inner {
    what: &'static str,
    state: Mutex<State>,
}

struct State {
    schedule: Schedule,
    /// Those who wait; each is sent its permit.
    waiting: HashMap<Ticket, oneshot::Sender<Permit>>,
    /// How long an admission takes, on a sliding average. `None`: none is over yet.
    hold: Option<Duration>,
    told: Told,
}

/// What was told of it to whoever records metrics.
#[derive(Default)]
struct Told {
    admitted: Level,
    waiting: Level,
}

/// That somebody was admitted. Dropping it makes room for the next one.
#[must_use = "dropping it gives the place back at once"]
pub struct Permit {
    gate: Arc<Inner>,
    party: Party,
    /// When it is as old as an admission is measured.
    aged: Deadline,
}

/// Somebody who waits, and may stop waiting at any time.
struct Waiting<'a> {
    gate: &'a Arc<Inner>,
    party: &'a Party,
    ticket: Ticket,
    permit: oneshot::Receiver<Permit>,
}

impl Gate {
    /// A gate in front of `what` (as in "the sandboxes", for messages) that admits `capacity` at a time; each tenant has the
    /// share `standard` unless it is given its own.
    #[must_use]
    pub fn new(what: &'static str, capacity: u32, standard: Share) -> Self {
        let schedule = Schedule::new(capacity, standard);
        let state =
            Mutex::new(State { schedule, waiting: HashMap::new(), hold: None, told: Told::default() });
        Self { inner: Arc::new(Inner { what, state }) }
    }

    /// Waits until there is room for one more of this tenant. Dropping the future gives up the place in the queue.
    ///
    /// # Errors
    /// When as many of the tenant wait as its share allows, or nothing of it is ever admitted; when the deadline passed.
    pub async fn admit(&self, tenant: &TenantId, deadline: Deadline) -> Result<Permit, Overloaded> {
        self.wait(&tenant.into(), deadline, |state| self.inner.overloaded(state, tenant)).await
    }

    /// Waits until there is room that no tenant waits for, for what is done before any of them needs it. It is nobody's by name, and
    /// never refused. Dropping the future gives up the place in the queue.
    pub(crate) async fn admit_house(&self) -> Permit {
        match self.wait(&Party::House, Deadline::NEVER, |_| ()).await {
            Ok(permit) => permit,
            Err(()) => std::future::pending().await,
        }
    }

    async fn wait<E>(
        &self,
        party: &Party,
        deadline: Deadline,
        refusal: impl FnOnce(&State) -> E,
    ) -> Result<Permit, E> {
        let mut waiting = {
            let mut state = self.inner.lock();
            let asked = state.schedule.ask(party);
            self.inner.tell(&mut state);
            match asked {
                Asked::Admitted => return Ok(Permit::new(&self.inner, party.clone())),
                Asked::Refused => {
                    self.inner.count_refusal();
                    return Err(refusal(&state));
                }
                Asked::Waiting(ticket) => {
                    let (sender, permit) = oneshot::channel();
                    state.waiting.insert(ticket, sender);
                    Waiting { gate: &self.inner, party, ticket, permit }
                }
            }
        };
        tokio::select! {
            biased;
            admitted = &mut waiting.permit => {
                if let Ok(permit) = admitted {
                    return Ok(permit);
                }
            }
            () = SystemClock.sleep_until(deadline) => {}
        }
        let state = self.inner.lock();
        self.inner.count_refusal();
        let refusal = refusal(&state);
        // It is behind the lock, too.
        drop(state);
        drop(waiting);
        Err(refusal)
    }

    /// How many it admits at a time, from now on. Nobody who is admitted is put out.
    pub fn set_capacity(&self, capacity: u32) {
        self.inner.change(|schedule| schedule.set_capacity(capacity));
    }

    /// What the tenant may have, from now on; `None`: what every tenant may. Nobody who is admitted or waits is put out.
    pub fn set_share(&self, tenant: &TenantId, share: Option<Share>) {
        self.inner.change(|schedule| schedule.set_share(&tenant.into(), share));
    }

    /// What every tenant may have that was given no share of its own, from now on.
    pub fn set_standard(&self, share: Share) {
        self.inner.change(|schedule| schedule.set_standard(share));
    }

    /// What every tenant may have that was given no share of its own.
    #[must_use]
    pub fn standard(&self) -> Share {
        self.inner.lock().schedule.standard()
    }

    /// What the tenant may have.
    #[must_use]
    pub fn share(&self, tenant: &TenantId) -> Share {
        self.inner.lock().schedule.share(&tenant.into())
    }

    /// How full it is.
    #[must_use]
    pub fn load(&self) -> GateLoad {
        let state = self.inner.lock();
        GateLoad {
            capacity: state.schedule.capacity(),
            admitted: state.schedule.admitted(),
            waiting: state.schedule.waiting(),
        }
    }

    /// How full it is with this tenant's. The capacity is what its share allows.
    #[must_use]
    pub fn load_of(&self, tenant: &TenantId) -> GateLoad {
        let (state, party) = (self.inner.lock(), tenant.into());
        let (admitted, waiting) = state.schedule.load(&party);
        GateLoad { capacity: state.schedule.share(&party).admitted, admitted, waiting }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells how full it is. Under the lock, so that what was told last is true.
    fn tell(&self, state: &mut State) {
        let State { schedule, told, .. } = state;
        let admitted = usize::try_from(schedule.admitted()).unwrap_or(usize::MAX);
        told.admitted.set(admitted, || gauge!(names::GATE_ADMITTED, "gate" => self.what));
        told.waiting.set(schedule.waiting(), || gauge!(names::GATE_WAITING, "gate" => self.what));
    }

    fn count_refusal(&self) {
        counter!(names::GATE_REFUSED, "gate" => self.what).increment(1);
    }

    fn overloaded(&self, state: &State, tenant: &TenantId) -> Overloaded {
        let party = tenant.into();
        let (admitted, waiting) = state.schedule.load(&party);
        let share = state.schedule.share(&party);
        let places = share.admitted.min(state.schedule.capacity()).max(1);
        let rounds = (u32::try_from(waiting).unwrap_or(u32::MAX) / places).saturating_add(1);
        let wait = state.hold.unwrap_or(FIRST_GUESS).saturating_mul(rounds);
        Overloaded {
            what: self.what,
            tenant: tenant.clone(),
            admitted,
            waiting,
            retry_after: (share.admitted > 0).then(|| wait.clamp(Duration::from_millis(1), LONGEST_ADVICE)),
        }
    }

    /// Changes the schedule, and admits whoever may then be.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut Schedule)) {
        let mut state = self.lock();
        change(&mut state.schedule);
        self.admit_all(state);
    }

    fn admit_all(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut unwanted = Vec::new();
        while let Some((party, ticket)) = state.schedule.next() {
            let permit = Permit::new(self, party);
            // Whoever has just stopped waiting has no ticket in the schedule any more, or does not take the permit.
            match state.waiting.remove(&ticket) {
                Some(sender) => unwanted.extend(sender.send(permit).err()),
                None => unwanted.push(permit),
            }
        }
        self.tell(&mut state);
        drop(state);
        // Each takes the lock, and may admit another.
        drop(unwanted);
    }
}

impl Permit {
    fn new(gate: &Arc<Inner>, party: Party) -> Self {
        Self { gate: Arc::clone(gate), party, aged: SystemClock.deadline(LONGEST_HOLD) }
    }

    /// Whose it is; `None`: no tenant's, but the host's own.
    #[must_use]
    pub const fn tenant(&self) -> Option<&TenantId> {
        self.party.tenant()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let held = LONGEST_HOLD.saturating_sub(SystemClock.remaining(self.aged));
        let mut state = self.gate.lock();
        // An eighth of what is new: it follows a change within a dozen admissions, and no single one moves it far.
        state.hold = Some(state.hold.map_or(held, |hold| (hold.saturating_mul(7).saturating_add(held)) / 8));
        state.schedule.give_back(&self.party);
        self.gate.admit_all(state);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        // Else it was admitted: the permit, if it was not taken, is dropped with its channel, after the lock.
        if state.waiting.remove(&self.ticket).is_some() {
            state.schedule.leave(self.party, self.ticket);
            self.gate.tell(&mut state);
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("what", &self.inner.what).field("load", &self.load()).finish()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("what", &self.gate.what).field("party", &self.party).finish()
    }
}

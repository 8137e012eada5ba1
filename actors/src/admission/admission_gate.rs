//! A gate: waits until the schedule admits, within a deadline, and gives back when what was admitted is over.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock, TenantId};
use metrics::{counter, gauge};
use tokio::sync::oneshot;

use super::fair_scheduler::{AdmissionDecision, FairScheduler, Requester, Share, Ticket};
use crate::metrics::{GaugeShare, names};

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
pub struct AdmissionLoad {
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
/// use conjure_actors::admission::{AdmissionGate, Share};
/// use conjure_base::{Clock as _, SystemClock, TenantId};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sandboxes = AdmissionGate::new("the sandboxes", 64, Share { admitted: 8, ..Share::default() });
/// let tenant = TenantId::new("acme")?;
/// let permit = sandboxes.admit(&tenant, SystemClock.deadline(Duration::from_secs(5))).await?;
/// assert_eq!(sandboxes.load().admitted, 1);
/// drop(permit);
/// assert_eq!(sandboxes.load().admitted, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AdmissionGate {
    inner: Arc<Inner>,
}

struct Inner {
    what: &'static str,
    state: Mutex<GateState>,
}

struct GateState {
    scheduler: FairScheduler,
    /// Those who wait; each is sent its permit.
    waiting: HashMap<Ticket, oneshot::Sender<Permit>>,
    /// How long an admission takes, on a sliding average. `None`: none is over yet.
    usual_hold: Option<Duration>,
    reported: ReportedLoad,
}

/// What was told of it to whoever records metrics.
#[derive(Default)]
struct ReportedLoad {
    admitted: GaugeShare,
    waiting: GaugeShare,
}

/// That somebody was admitted. Dropping it makes room for the next one.
#[must_use = "dropping it gives the place back at once"]
pub struct Permit {
    gate: Arc<Inner>,
    requester: Requester,
    /// When it is as old as an admission is measured.
    aged: Deadline,
}

/// Somebody who waits, and may stop waiting at any time.
struct WaitGuard<'a> {
    gate: &'a Arc<Inner>,
    requester: &'a Requester,
    ticket: Ticket,
    permit: oneshot::Receiver<Permit>,
}

impl AdmissionGate {
    /// A gate in front of `what` (as in "the sandboxes", for messages) that admits `capacity` at a time; each tenant has the
    /// share `standard` unless it is given its own.
    #[must_use]
    pub fn new(what: &'static str, capacity: u32, default_share: Share) -> Self {
        let scheduler = FairScheduler::new(capacity, default_share);
        let state = Mutex::new(GateState {
            scheduler,
            waiting: HashMap::new(),
            usual_hold: None,
            reported: ReportedLoad::default(),
        });
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
    pub(crate) async fn admit_background(&self) -> Permit {
        match self.wait(&Requester::Background, Deadline::NEVER, |_| ()).await {
            Ok(permit) => permit,
            Err(()) => std::future::pending().await,
        }
    }

    async fn wait<E>(
        &self,
        requester: &Requester,
        deadline: Deadline,
        refusal: impl FnOnce(&GateState) -> E,
    ) -> Result<Permit, E> {
        let mut waiting = {
            let mut state = self.inner.lock();
            let decision = state.scheduler.request(requester);
            self.inner.report(&mut state);
            match decision {
                AdmissionDecision::Admitted => return Ok(Permit::new(&self.inner, requester.clone())),
                AdmissionDecision::Refused => {
                    self.inner.count_refusal();
                    return Err(refusal(&state));
                }
                AdmissionDecision::Waiting(ticket) => {
                    let (sender, permit) = oneshot::channel();
                    state.waiting.insert(ticket, sender);
                    WaitGuard { gate: &self.inner, requester, ticket, permit }
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
        self.inner.change(|scheduler| scheduler.set_capacity(capacity));
    }

    /// What the tenant may have, from now on; `None`: what every tenant may. Nobody who is admitted or waits is put out.
    pub fn set_share(&self, tenant: &TenantId, share: Option<Share>) {
        self.inner.change(|scheduler| scheduler.set_share(&tenant.into(), share));
    }

    /// What every tenant may have that was given no share of its own, from now on.
    pub fn set_default_share(&self, share: Share) {
        self.inner.change(|scheduler| scheduler.set_default_share(share));
    }

    /// What every tenant may have that was given no share of its own.
    #[must_use]
    pub fn default_share(&self) -> Share {
        self.inner.lock().scheduler.default_share()
    }

    /// What the tenant may have.
    #[must_use]
    pub fn share(&self, tenant: &TenantId) -> Share {
        self.inner.lock().scheduler.share(&tenant.into())
    }

    /// How full it is.
    #[must_use]
    pub fn load(&self) -> AdmissionLoad {
        let state = self.inner.lock();
        AdmissionLoad {
            capacity: state.scheduler.capacity(),
            admitted: state.scheduler.admitted(),
            waiting: state.scheduler.waiting(),
        }
    }

    /// How full it is with this tenant's. The capacity is what its share allows.
    #[must_use]
    pub fn tenant_load(&self, tenant: &TenantId) -> AdmissionLoad {
        let (state, requester) = (self.inner.lock(), tenant.into());
        let (admitted, waiting) = state.scheduler.load(&requester);
        AdmissionLoad { capacity: state.scheduler.share(&requester).admitted, admitted, waiting }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        // Every change of the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells how full it is. Under the lock, so that what was told last is true.
    fn report(&self, state: &mut GateState) {
        let GateState { scheduler, reported, .. } = state;
        let admitted = usize::try_from(scheduler.admitted()).unwrap_or(usize::MAX);
        reported.admitted.set(admitted, || gauge!(names::ADMISSION_ADMITTED, "gate" => self.what));
        reported.waiting.set(scheduler.waiting(), || gauge!(names::ADMISSION_WAITING, "gate" => self.what));
    }

    fn count_refusal(&self) {
        counter!(names::ADMISSION_REFUSED, "gate" => self.what).increment(1);
    }

    fn overloaded(&self, state: &GateState, tenant: &TenantId) -> Overloaded {
        let requester = tenant.into();
        let (admitted, waiting) = state.scheduler.load(&requester);
        let share = state.scheduler.share(&requester);
        let slots = share.admitted.min(state.scheduler.capacity()).max(1);
        let rounds = (u32::try_from(waiting).unwrap_or(u32::MAX) / slots).saturating_add(1);
        let wait = state.usual_hold.unwrap_or(FIRST_GUESS).saturating_mul(rounds);
        Overloaded {
            what: self.what,
            tenant: tenant.clone(),
            admitted,
            waiting,
            retry_after: (share.admitted > 0).then(|| wait.clamp(Duration::from_millis(1), LONGEST_ADVICE)),
        }
    }

    /// Changes the schedule, and admits whoever may then be.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut FairScheduler)) {
        let mut state = self.lock();
        change(&mut state.scheduler);
        self.admit_all(state);
    }

    fn admit_all(self: &Arc<Self>, mut state: MutexGuard<'_, GateState>) {
        let mut unwanted = Vec::new();
        while let Some((requester, ticket)) = state.scheduler.next() {
            let permit = Permit::new(self, requester);
            // Whoever has just stopped waiting has no ticket in the schedule any more, or does not take the permit.
            match state.waiting.remove(&ticket) {
                Some(sender) => unwanted.extend(sender.send(permit).err()),
                None => unwanted.push(permit),
            }
        }
        self.report(&mut state);
        drop(state);
        // Each takes the lock, and may admit another.
        drop(unwanted);
    }
}

impl Permit {
    fn new(gate: &Arc<Inner>, requester: Requester) -> Self {
        Self { gate: Arc::clone(gate), requester, aged: SystemClock.deadline(LONGEST_HOLD) }
    }

    /// Whose it is; `None`: no tenant's, but the host's own.
    #[must_use]
    pub const fn tenant(&self) -> Option<&TenantId> {
        self.requester.tenant()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let held = LONGEST_HOLD.saturating_sub(SystemClock.remaining(self.aged));
        let mut state = self.gate.lock();
        // An eighth of what is new: it follows a change within a dozen admissions, and no single one moves it far.
        state.usual_hold = Some(
            state
                .usual_hold
                .map_or(held, |usual_hold| (usual_hold.saturating_mul(7).saturating_add(held)) / 8),
        );
        state.scheduler.release(&self.requester);
        self.gate.admit_all(state);
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        // Else it was admitted: the permit, if it was not taken, is dropped with its channel, after the lock.
        if state.waiting.remove(&self.ticket).is_some() {
            state.scheduler.cancel_wait(self.requester, self.ticket);
            self.gate.report(&mut state);
        }
    }
}

impl fmt::Debug for AdmissionGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("what", &self.inner.what).field("load", &self.load()).finish()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("what", &self.gate.what).field("party", &self.requester).finish()
    }
}

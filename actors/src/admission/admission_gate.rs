//! The admission gate. Requests wait, with a deadline, until the scheduler admits them. They release their permit when
//! they end.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock, TenantId, lock, with_deadline};
use metrics::{counter, gauge};
use tokio::sync::oneshot;

use super::fair_scheduler::{AdmissionDecision, FairScheduler, Requester, Share, Ticket};
use crate::metrics::GaugeShare;
use crate::metrics::names;

/// The suggested retry delay while nothing has been measured.
const FIRST_GUESS: Duration = Duration::from_millis(250);

/// The longest suggested retry delay, whatever was measured.
const LONGEST_ADVICE: Duration = Duration::from_secs(60);

/// The longest measured duration of an admission. Longer admissions count as this long.
const LONGEST_HOLD: Duration = Duration::from_secs(3_600);

/// The error of a request that was not admitted. Nothing was started, and the same request may be sent again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource} of the tenant `{tenant}` are {admitted}, and {waiting} more wait: {}", advice(*retry_after))]
#[non_exhaustive]
pub struct Overloaded {
    /// The requested resource, by the name that was given to [`AdmissionGate::new`].
    pub resource: &'static str,
    /// The tenant of the request.
    pub tenant: TenantId,
    /// How many requests of the tenant are admitted.
    pub admitted: u32,
    /// How many requests of the tenant wait.
    pub waiting: usize,
    /// After which time another attempt makes sense, estimated from how long earlier admissions lasted. `None` if no
    /// attempt can succeed, because the tenant's share is zero.
    pub retry_after: Option<Duration>,
}

fn advice(retry_after: Option<Duration>) -> String {
    match retry_after {
        Some(after) => format!("try again in {} ms", after.as_millis()),
        None => "the tenant's limit is zero".to_owned(),
    }
}

/// The load of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdmissionLoad {
    /// The maximum number of requests that are admitted at a time.
    pub limit: u32,
    /// How many are admitted now.
    pub admitted: u32,
    /// How many wait now.
    pub waiting: usize,
}

/// Limits how many requests use a shared resource at a time, and gives each tenant its [`Share`]. Cheap to clone;
/// clones share one gate.
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
    resource: &'static str,
    state: Mutex<GateState>,
}

struct GateState {
    scheduler: FairScheduler,
    /// The waiting requests. Each gets its permit through its sender.
    waiting: HashMap<Ticket, oneshot::Sender<Permit>>,
    /// The moving average of how long an admission lasts; `None` if none has ended yet.
    mean_hold: Option<Duration>,
    reported: ReportedLoad,
}

/// The load that was last reported as metrics.
#[derive(Default)]
struct ReportedLoad {
    admitted: GaugeShare,
    waiting: GaugeShare,
}

/// The permit of an admitted request. Dropping it admits the next one.
#[must_use = "dropping it releases the permit"]
pub struct Permit {
    gate: Arc<Inner>,
    requester: Requester,
    /// The time at which the age of the permit reaches the longest measured duration.
    max_age_at: Deadline,
}

/// A waiting request. Dropping this removes it from the queue.
struct WaitGuard<'a> {
    gate: &'a Arc<Inner>,
    requester: &'a Requester,
    ticket: Ticket,
    permit: oneshot::Receiver<Permit>,
}

impl AdmissionGate {
    /// A gate that admits `capacity` requests at a time. `resource` is the name of its resource in messages
    /// and metrics, such as "the sandboxes". Each tenant has `default_share` until it gets a share of its own.
    #[must_use]
    pub fn new(resource: &'static str, capacity: u32, default_share: Share) -> Self {
        let scheduler = FairScheduler::new(capacity, default_share);
        let state = Mutex::new(GateState {
            scheduler,
            waiting: HashMap::new(),
            mean_hold: None,
            reported: ReportedLoad::default(),
        });
        Self { inner: Arc::new(Inner { resource, state }) }
    }

    /// Waits until one more request of this tenant is admitted. Cancel safe: dropping the future leaves the queue.
    ///
    /// # Errors
    /// When the tenant has the maximum number of waiting requests, when its share is zero, or when the deadline passed.
    pub async fn admit(&self, tenant: &TenantId, deadline: Deadline) -> Result<Permit, Overloaded> {
        self.wait(&tenant.into(), deadline, |state| self.inner.overloaded(state, tenant)).await
    }

    /// Waits for room that no tenant waits for, for work that is done in advance. The permit belongs to no tenant, and
    /// the request is never refused. Cancel safe: dropping the future leaves the queue.
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
        if let Ok(Ok(permit)) = with_deadline(&SystemClock, deadline, &mut waiting.permit).await {
            return Ok(permit);
        }
        let state = self.inner.lock();
        self.inner.count_refusal();
        let refusal = refusal(&state);
        // Dropping the `WaitGuard` takes the lock, so the lock must be free.
        drop(state);
        drop(waiting);
        Err(refusal)
    }

    /// Changes how many requests are admitted at a time. Admitted requests stay.
    pub fn set_capacity(&self, capacity: u32) {
        self.inner.change(|scheduler| scheduler.set_capacity(capacity));
    }

    /// Changes the share of a tenant; `None` restores the default share. Admitted and waiting requests stay.
    pub fn set_share(&self, tenant: &TenantId, share: Option<Share>) {
        self.inner.change(|scheduler| scheduler.set_share(&tenant.into(), share));
    }

    /// Changes the share of all tenants that have none of their own.
    pub fn set_default_share(&self, share: Share) {
        self.inner.change(|scheduler| scheduler.set_default_share(share));
    }

    /// The share of all tenants that have none of their own.
    #[must_use]
    pub fn default_share(&self) -> Share {
        self.inner.lock().scheduler.default_share()
    }

    /// The share of a tenant.
    #[must_use]
    pub fn share(&self, tenant: &TenantId) -> Share {
        self.inner.lock().scheduler.share(&tenant.into())
    }

    /// The load of the gate.
    #[must_use]
    pub fn load(&self) -> AdmissionLoad {
        let state = self.inner.lock();
        AdmissionLoad {
            limit: state.scheduler.capacity(),
            admitted: state.scheduler.admitted(),
            waiting: state.scheduler.waiting(),
        }
    }

    /// The load by this tenant's requests. The limit is that of its share.
    #[must_use]
    pub fn tenant_load(&self, tenant: &TenantId) -> AdmissionLoad {
        let (state, requester) = (self.inner.lock(), tenant.into());
        let (admitted, waiting) = state.scheduler.load(&requester);
        AdmissionLoad { limit: state.scheduler.share(&requester).admitted, admitted, waiting }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        // Safe after a panic: the state is consistent wherever a change of it can panic.
        lock(&self.state)
    }

    /// Reports the load as metrics. The caller holds the lock, so reports are in order and the last one is current.
    fn report(&self, state: &mut GateState) {
        let GateState { scheduler, reported, .. } = state;
        let admitted = usize::try_from(scheduler.admitted()).unwrap_or(usize::MAX);
        reported.admitted.set(admitted, || gauge!(names::ADMISSION_ADMITTED, "gate" => self.resource));
        reported
            .waiting
            .set(scheduler.waiting(), || gauge!(names::ADMISSION_WAITING, "gate" => self.resource));
    }

    fn count_refusal(&self) {
        counter!(names::ADMISSION_REFUSED, "gate" => self.resource).increment(1);
    }

    fn overloaded(&self, state: &GateState, tenant: &TenantId) -> Overloaded {
        let requester = tenant.into();
        let (admitted, waiting) = state.scheduler.load(&requester);
        let share = state.scheduler.share(&requester);
        let slots = share.admitted.min(state.scheduler.capacity()).max(1);
        let rounds = (u32::try_from(waiting).unwrap_or(u32::MAX) / slots).saturating_add(1);
        let wait = state.mean_hold.unwrap_or(FIRST_GUESS).saturating_mul(rounds);
        Overloaded {
            resource: self.resource,
            tenant: tenant.clone(),
            admitted,
            waiting,
            retry_after: (share.admitted > 0).then(|| wait.clamp(Duration::from_millis(1), LONGEST_ADVICE)),
        }
    }

    /// Changes the scheduler, and admits the requests that may be admitted now.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut FairScheduler)) {
        let mut state = self.lock();
        change(&mut state.scheduler);
        self.admit_all(state);
    }

    fn admit_all(self: &Arc<Self>, mut state: MutexGuard<'_, GateState>) {
        let mut unwanted = Vec::new();
        while let Some((requester, ticket)) = state.scheduler.next() {
            let permit = Permit::new(self, requester);
            // A requester that has just stopped waiting has removed its sender, or does not receive the permit.
            match state.waiting.remove(&ticket) {
                Some(sender) => unwanted.extend(sender.send(permit).err()),
                None => unwanted.push(permit),
            }
        }
        self.report(&mut state);
        drop(state);
        // The drop of a permit takes the lock, and may admit another request.
        drop(unwanted);
    }
}

impl Permit {
    fn new(gate: &Arc<Inner>, requester: Requester) -> Self {
        Self { gate: Arc::clone(gate), requester, max_age_at: SystemClock.deadline(LONGEST_HOLD) }
    }

    /// The tenant of the permit; `None` if it belongs to background work.
    #[must_use]
    pub const fn tenant(&self) -> Option<&TenantId> {
        self.requester.tenant()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let held = LONGEST_HOLD.saturating_sub(SystemClock.remaining(self.max_age_at));
        let mut state = self.gate.lock();
        // Each new duration counts one eighth. So the average follows a change within a dozen admissions, and no single
        // duration changes it much.
        state.mean_hold = Some(
            state.mean_hold.map_or(held, |mean_hold| (mean_hold.saturating_mul(7).saturating_add(held)) / 8),
        );
        state.scheduler.release(&self.requester);
        self.gate.admit_all(state);
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        // Otherwise the request was admitted. A permit that was not received is dropped with its channel, after the
        // lock is released.
        if state.waiting.remove(&self.ticket).is_some() {
            state.scheduler.cancel_wait(self.requester, self.ticket);
            self.gate.report(&mut state);
        }
    }
}

impl fmt::Debug for AdmissionGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionGate")
            .field("resource", &self.inner.resource)
            .field("load", &self.load())
            .finish()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("resource", &self.gate.resource)
            .field("requester", &self.requester)
            .finish()
    }
}

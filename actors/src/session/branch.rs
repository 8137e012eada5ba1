//! What a session is in the tree: its actor, one child of its tenant's supervisor.
//!
//! State: none. It is made anew whenever the session is started where nothing of it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::actor::SessionActor;
use super::bringing::IN_HASTE;
use super::mail::Mail;
use super::shared::Shared;
use crate::supervision::{
    Address, ChildId, ChildSpec, Context, Failure, Restart, Shutdown, SpecError, WorkerSpec,
};
use crate::tenants::Present;

/// The actor of a session, and its address. It is forgotten when it has ended for good.
///
/// What it needs besides stands below it, started by the first call that wants it: the supervisor of its sandbox, and the
/// registry of its artifacts. They are stopped behind the actor, so that a turn that is interrupted ends its tools in order. A
/// crash of the actor takes them along: the next incarnation, which begins when nothing of them is left, has a sandbox of its own.
pub(crate) fn session_spec(
    shared: &Arc<Shared>,
    present: Present,
) -> Result<(ChildSpec, Address<Mail>), SpecError> {
    let options = &shared.setting.options;
    let idle_after = shared.account.terms().idle_after.unwrap_or(options.idle_after);
    let down = Arc::new(Down { shared: Arc::clone(shared), used: AtomicBool::new(false), _present: present });
    let start = move |context: Context<Mail>| {
        let shared = Arc::clone(&down.shared);
        down.used.store(true, Ordering::Relaxed);
        async move { SessionActor::start(shared, context).await.map_err(Failure::from) }
    };
    Ok(WorkerSpec::new(ChildId::new(shared.key.session.to_string())?, start)
        .restart(Restart::TRANSIENT)
        .shutdown(Shutdown::After(options.grace.saturating_add(Duration::from_secs(10) + 3 * IN_HASTE)))
        .passivate_after(idle_after)
        .queue(options.queue)
        .tenant(shared.key.tenant.clone())
        .session(shared.key.session)
        .build())
}

/// Dropped with the spec: nothing of the session's tree is left then, where there was one.
struct Down {
    shared: Arc<Shared>,
    used: AtomicBool,
    /// The session counts as live for as long.
    _present: Present,
}

impl Drop for Down {
    fn drop(&mut self) {
        if self.used.load(Ordering::Relaxed) {
            self.shared.is_down();
        }
    }
}

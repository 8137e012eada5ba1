//! What a session is in the tree: its actor, one child of its tenant's supervisor.
//!
//! State: none. It is made anew whenever the session is started where nothing of it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::actor::SessionActor;
use super::actor_message::ActorMessage;
use super::copy_out::SHUTDOWN_TIMEOUT;
use super::session_entry::SessionEntry;
use crate::supervision::{
    Address, ChildId, ChildSpec, Context, Failure, Restart, Shutdown, SpecError, WorkerSpec,
};
use crate::tenants::LiveSessionGuard;

/// The actor of a session, and its address. It is forgotten when it has ended for good.
///
/// What it needs besides stands below it, started by the first call that wants it: the supervisor of its sandbox, and the
/// registry of its artifacts. They are stopped behind the actor, so that a turn that is interrupted ends its tools in order. A
/// crash of the actor takes them along: the next incarnation, which begins when nothing of them is left, has a sandbox of its own.
pub(crate) fn session_child_spec(
    entry: &Arc<SessionEntry>,
    present: LiveSessionGuard,
) -> Result<(ChildSpec, Address<ActorMessage>), SpecError> {
    let options = &entry.services.options;
    let idle_after = entry.account.limits().idle_after.unwrap_or(options.idle_after);
    let down =
        Arc::new(DownGuard { entry: Arc::clone(entry), used: AtomicBool::new(false), _present: present });
    let start = move |context: Context<ActorMessage>| {
        let entry = Arc::clone(&down.entry);
        down.used.store(true, Ordering::Relaxed);
        async move { SessionActor::start(entry, context).await.map_err(Failure::from) }
    };
    Ok(WorkerSpec::new(ChildId::new(entry.key.session.to_string())?, start)
        .restart(Restart::TRANSIENT)
        .shutdown(Shutdown::After(
            options.grace.saturating_add(Duration::from_secs(10) + 3 * SHUTDOWN_TIMEOUT),
        ))
        .passivate_after(idle_after)
        .queue(options.queue)
        .tenant(entry.key.tenant.clone())
        .session(entry.key.session)
        .build())
}

/// Dropped with the spec: nothing of the session's tree is left then, where there was one.
struct DownGuard {
    entry: Arc<SessionEntry>,
    used: AtomicBool,
    /// The session counts as live for as long.
    _present: LiveSessionGuard,
}

impl Drop for DownGuard {
    fn drop(&mut self) {
        if self.used.load(Ordering::Relaxed) {
            self.entry.mark_down();
        }
    }
}

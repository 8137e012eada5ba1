//! The child spec of a session: its actor is one child of its tenant's supervisor.
//!
//! State: none. The spec is created each time the session starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::actor_message::ActorMessage;
use super::session_entry::SessionEntry;
use crate::session::actor::SessionActor;
use crate::session::turn::workspace_copy_out::SHUTDOWN_TIMEOUT;
use crate::supervision::{
    Address, ChildId, ChildSpec, Context, Failure, Restart, Shutdown, SpecError, WorkerSpec,
};
use crate::tenants::LiveSessionGuard;

/// The spec of a session's actor, and the actor's address. The supervisor forgets a child that has ended for good.
///
/// The first call that needs them starts two children below the actor: the supervisor of its sandbox, and the registry
/// of its artifacts. They stop after the actor, so that an interrupted turn can end its tools in order. A crash of the
/// actor ends them as well: the next incarnation starts once they are gone, and gets its own sandbox.
pub(crate) fn session_child_spec(
    entry: &Arc<SessionEntry>,
    live_session: LiveSessionGuard,
) -> Result<(ChildSpec, Address<ActorMessage>), SpecError> {
    let options = &entry.services.options;
    let idle_after = entry.account.limits().idle_after.unwrap_or(options.idle_after);
    let down = Arc::new(DownGuard {
        entry: Arc::clone(entry),
        used: AtomicBool::new(false),
        _live_session: live_session,
    });
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

/// Dropped with the spec, when nothing of the session's tree is left.
struct DownGuard {
    entry: Arc<SessionEntry>,
    used: AtomicBool,
    /// Counts the session as live until it is dropped.
    _live_session: LiveSessionGuard,
}

impl Drop for DownGuard {
    fn drop(&mut self) {
        if self.used.load(Ordering::Relaxed) {
            self.entry.mark_down();
        }
    }
}

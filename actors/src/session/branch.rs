//! The part of the tree that a session is: its supervisor, what keeps its sandbox, its actor.
//!
//! State: none. It is made anew whenever the session is started where nothing of it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::actor::SessionActor;
use super::bringing::IN_HASTE;
use super::mail::Mail;
use super::shared::Shared;
use crate::executors::Executors;
use crate::metrics::SandboxMeter;
use crate::supervision::{
    Address, AutoShutdown, ChildId, ChildSpec, Context, Failure, Restart, Shutdown, Significance, SpecError,
    Strategy, SupervisorSpec, WorkerSpec,
};
use crate::tenants::Present;

/// The supervisor of a session and what is below it, and the actor's address. It ends with its actor, and is then
/// forgotten.
///
/// The sandbox's part has its place before the actor: the first call that needs a sandbox has it started, and it is stopped behind the actor, so that a turn that is interrupted ends its tools in
/// order. A crash of the actor takes it along: the next incarnation begins with a sandbox of its own.
pub(crate) fn session_spec(
    shared: &Arc<Shared>,
    present: Present,
) -> Result<(ChildSpec, Address<Mail>), SpecError> {
    let options = &shared.setting.options;
    let (executors_spec, executors) = Executors::vacant(options.executors)?;
    let executors = executors.counted_by(SandboxMeter::new(&shared.setting.meter, &shared.key.tenant));
    let idle_after = shared.account.terms().idle_after.unwrap_or(options.idle_after);
    let sandboxes = executors.clone();
    let down = Arc::new(Down { shared: Arc::clone(shared), used: AtomicBool::new(false), _present: present });
    let start = move |context: Context<Mail>| {
        let (shared, executors) = (Arc::clone(&down.shared), executors.clone());
        down.used.store(true, Ordering::Relaxed);
        async move { SessionActor::start(shared, executors, context).await.map_err(Failure::from) }
    };
    let (actor, address) = WorkerSpec::new(ChildId::new("actor")?, start)
        .restart(Restart::Transient(Significance::Significant))
        .shutdown(Shutdown::After(options.grace.saturating_add(Duration::from_secs(10) + 2 * IN_HASTE)))
        .passivate_after(idle_after)
        .queue(options.queue)
        .build();
    let id = ChildId::new(shared.key.session.to_string())?;
    let (spec, supervisor) =
        SupervisorSpec::with_auto_shutdown(id, Strategy::OneForAll, AutoShutdown::AnySignificant)
            .restart(Restart::TEMPORARY)
            .tenant(shared.key.tenant.clone())
            .session(shared.key.session)
            .child(executors_spec.on_request())?
            .child(actor)?
            .build();
    sandboxes.begin_under(supervisor);
    Ok((spec, address))
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

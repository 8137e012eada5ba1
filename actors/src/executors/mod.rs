//! The sandbox of a session, supervised: it is made when the first call needs it, watched, and replaced when it is lost.
//!
//! Below a session's actor stands a supervisor for it, from the first call on ([`SupervisedExecutorBuilder`] makes of an [`ExecutorSource`] a
//! [`SupervisedExecutor`], which is what the session's tools hold). [`ExecutorsSpec`] is the same for a tree of one's own. Calls
//! go straight to the sandbox, at the speed of a fork; the actor beside it only watches. What to rely on:
//!
//! - A call that is under way when the sandbox dies, or its actor does, ends as `Lost`. It is never run again by itself.
//! - The sandbox is replaced by one with the same workspace. A call that comes meanwhile waits for that until its own
//!   deadline. What was provided to the one before is provided again.
//! - **There are never two sandboxes of a session at once**: the next one is made only when nothing of the one before is
//!   left, whatever ended it; behind one that was lost, as soon as nothing of it changes the workspace any more
//!   ([`Executor::stop`](conjure_sandbox::Executor::stop)). For that the end of a sandbox belongs to lasting work of its actor
//!   ([`Context::spawn_joined`](crate::supervision::Context::spawn_joined)), and not to the actor's last words. Under
//!   `local`, which holds nothing together, what a killed guest ran ends a moment after it.
//! - A sandbox belongs to one session: its source hands it over by value.
//! - What the model cannot see by itself, that the sandbox is another one and what is gone, it is told once, with the
//!   next result ([`Executor::take_model_notice`](conjure_sandbox::Executor::take_model_notice)).
//! - A sandbox that no call uses is paused, where the host wants that ([`ExecutorOptions::pause_after`]): what runs in the background
//!   stands still. The next call has it go on first. Nobody begins a pause while a call is under way.
//! - A first start that fails is the error of the call that needed it; the next call tries again. A sandbox that cannot be
//!   replaced is tried again after longer and longer waits, a few times, and then with each call.
//!
//! State: all in memory. A crash of the host ends the sandbox with it; a session that goes on says so
//! ([`ExecutorsSpec::resumed`]).

mod actor;
mod lazy_supervisor;
mod live_sandbox;
mod notice;
mod options;
mod sandbox_slot;
mod source;
mod spec;
mod supervised;
mod supervised_process;
mod usage;

pub(crate) use sandbox_slot::SandboxLifecycle;
pub(crate) use spec::PriorSandbox;

pub use options::ExecutorOptions;
pub use source::{ConnectorSource, ExecutorSource};
pub use spec::{ExecutorsSpec, SupervisedExecutorBuilder};
pub use supervised::SupervisedExecutor;

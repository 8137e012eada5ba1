//! The supervised sandbox of a session: created by the first call that needs it, watched, and replaced when it is lost.
//!
//! The first call starts a supervisor for the sandbox below the session's actor. [`SupervisedExecutorBuilder`] makes a
//! [`SupervisedExecutor`] from an [`ExecutorSource`], for the session's tools. [`SupervisedExecutor::detached`] makes one for a
//! tree of your own. Calls go directly to the sandbox; the actor beside it only watches. The rules:
//!
//! - A call that runs when the sandbox or its actor dies ends as `Lost`. It is never run again automatically.
//! - A lost sandbox is replaced by one with the same workspace. Calls that come meanwhile wait for it until their own
//!   deadlines. Installed content is installed again.
//! - **A session never has two sandboxes at once.** The next one is created when nothing of the last one is left. After a lost
//!   sandbox it is enough that nothing of it changes the workspace any more ([`Executor::stop`](conjure_sandbox::Executor::stop)).
//!   So the end of a sandbox is joined work of its actor ([`Context::spawn_joined`](crate::supervision::Context::spawn_joined)).
//!   The `local` connector does not hold processes together: what a killed guest ran ends shortly after the guest.
//! - A sandbox belongs to one session: its source hands it over by value.
//! - The model cannot see that the sandbox was replaced. So the next result carries one notice of the replacement and of what was
//!   lost ([`Executor::take_model_notice`](conjure_sandbox::Executor::take_model_notice)).
//! - A sandbox that no call uses can be paused ([`ExecutorOptions::pause_after`]). The next call resumes it first. A pause never
//!   starts while a call runs.
//! - If the first start fails, the call that needed it gets the error, and the next call tries again. If a lost sandbox cannot be
//!   replaced, the supervisor tries again a few times with growing pauses. After that, each call tries again.
//!
//! State: all in memory. A crash of the process ends the sandbox; the revived session tells the model so
//! ([`PriorSandbox::Existed`]).

mod call_error;
mod idle_tracking;
mod lazy_supervisor;
mod live_sandbox;
mod notice;
mod options;
mod sandbox_actor;
mod sandbox_slot;
mod source;
mod spec;
mod supervised_executor;
mod supervised_process;

pub(crate) use sandbox_slot::SandboxLifecycle;

pub use options::ExecutorOptions;
pub use source::{ConnectorSource, ExecutorSource};
pub use spec::{PriorSandbox, SupervisedExecutorBuilder};
pub use supervised_executor::SupervisedExecutor;

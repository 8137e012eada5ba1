//! Supervision with OTP's semantics, on the actors of `ractor`.
//!
//! The module runs a tree of supervisors and workers. A worker implements [`Worker`] and is described by a
//! [`WorkerSpec`]. A supervisor is described by a [`SupervisorSpec`]. Its children have an order and a [`Strategy`], or
//! they come and go by request ([`SupervisorSpec::dynamic`], or [`Partitions`] of many). The embedder spawns a
//! [`Root`]. It reaches a worker through an [`Address`] and a supervisor through a [`Supervisor`]; both stay valid over
//! restarts.
//!
//! The guarantees:
//!
//! - Children start in order, each after the start of the one before. They stop in reverse order, each with everything
//!   below it. A dynamic supervisor starts and stops its children in parallel.
//! - **A supervisor restarts a child only when nothing of its last incarnation is left**: not its state, not its
//!   tracked work ([`Context::spawn`], [`Context::spawn_blocking`]), not a grandchild. The child's monitors are
//!   notified at the same point.
//! - A supervisor runs no code of its children. They start and are dropped on their own tasks, so a supervisor always
//!   stays responsive.
//! - A worker can start actors below itself when it first needs them ([`ChildScope`]). They end with the worker, as its
//!   tracked work does.
//! - Every call has a deadline, and every queue has a bound. A message that does not fit is returned to its sender.
//! - A pure state machine (`machine/`) decides what is restarted when. Its tests compare it with a reference model.
//!
//! Time is Tokio's, so a test can pause it. A crash of the process loses the whole tree. State that must survive
//! belongs in the journal.
//!
//! ```
//! use std::time::Duration;
//!
//! use conjure_actors::supervision::{
//!     ChildId, Context, Failure, Flow, Reply, Root, Strategy, SupervisorSpec, Worker, WorkerSpec,
//! };
//! use conjure_base::{Clock, SystemClock};
//!
//! struct Counter(u64);
//!
//! enum Message {
//!     Add(u64),
//!     Total(Reply<u64>),
//! }
//!
//! impl Worker for Counter {
//!     type Message = Message;
//!
//!     async fn handle(&mut self, message: Message, _: &Context<Message>) -> Result<Flow, Failure> {
//!         match message {
//!             Message::Add(number) => self.0 = self.0.checked_add(number).ok_or("too many")?,
//!             Message::Total(reply) => reply.send(self.0),
//!         }
//!         Ok(Flow::Continue)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let soon = || SystemClock.deadline(Duration::from_secs(5));
//! let (counter, address) = WorkerSpec::new(ChildId::new("counter")?, |_| async { Ok(Counter(0)) }).build();
//! let spec = SupervisorSpec::ordered(ChildId::new("root")?, Strategy::OneForOne).child(counter)?;
//! let (spec, supervisor) = spec.build();
//! let root = Root::spawn(spec, soon()).await?;
//!
//! address.send(Message::Add(2))?;
//! assert_eq!(address.call(soon(), Message::Total).await?, 2);
//!
//! // One addition too many fails it, and it is started again.
//! let down = address.monitor().ok_or("it never ran")?;
//! address.send(Message::Add(u64::MAX))?;
//! assert_eq!(down.await.exit.to_string(), "failed: too many");
//! while supervisor.count().running == 0 {
//!     tokio::task::yield_now().await;
//! }
//! assert_eq!(address.call(soon(), Message::Total).await?, 0);
//! print!("{}", root.tree());
//!
//! root.shutdown(soon()).await?;
//! # Ok(())
//! # }
//! ```

mod handles;
mod machine;
mod root;
mod running;
mod specs;
mod tree;

pub(crate) use running::timer::OneShotTimer;

pub use handles::address::{Address, SendError};
pub use handles::call::{CallError, Reply};
pub use handles::child::Child;
pub use handles::child_scope::ChildScope;
pub use handles::context::{Context, Job, WaitReasonGuard};
pub use handles::error::{RequestError, ShutdownError, StartError};
pub use handles::handle::Supervisor;
pub use handles::monitor::{Down, Monitor};
pub use handles::worker::{Flow, Worker};
pub use root::Root;
pub use running::node::Status;
pub use specs::backoff::Backoff;
pub use specs::exit::{Cause, Exit, ExitClass, Failure, StartFailure};
pub use specs::id::{ChildId, SpecError};
pub use specs::partitions::Partitions;
pub use specs::policy::{
    AutoShutdown, Intensity, IntensityScope, Kind, OnLimit, Restart, Shutdown, Significance, Strategy,
};
pub use specs::spec::{ChildSpec, WorkerSpec};
pub use specs::supervisor_spec::{Dynamic, Ordered, SupervisorSpec};
pub use tree::{ActorInfo, ActorTree, ChildCounts};

//! Supervision with OTP's semantics, on the actors of `ractor`.
//!
//! A tree of supervisors and workers. A worker implements [`Worker`] and is described by a [`WorkerSpec`]; a supervisor is
//! described by a [`SupervisorSpec`], with children in order and a [`Strategy`], or with children that come and go
//! ([`SupervisorSpec::dynamic`], or [`Partitions`] of many). The embedder spawns a [`Root`], and reaches
//! workers through an [`Address`] and to supervisors through a [`Supervisor`], both good over restarts.
//!
//! What to rely on:
//!
//! - Children start in order, each after the start of the one before, and stop in reverse, each with all below it. Dynamic
//!   supervisors start and stop theirs in parallel.
//! - **A child is started again only when nothing of its last incarnation is left**: not its state, not its tracked work
//!   ([`Context::spawn`], [`Context::spawn_blocking`]), not a grandchild. Only then its monitors hear of its end.
//! - A supervisor runs no code of its children: their starts, however slow, are on their own tasks, and so are their drops.
//!   It is always responsive.
//! - What a worker may need stands below it ([`ChildScope`]), started when it is first needed, and ends with it as its tracked work does.
//! - Every call has a deadline, every queue has a bound, and what does not fit is a value.
//! - The decision what to restart when is a pure machine (`machine/`), tested against a reference model.
//!
//! Times are Tokio's, so a test can pause them. A crash of the process loses all of this; what must survive belongs in the
//! journal.
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
pub use handles::monitor::{Down, MessageMonitor, Monitor};
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

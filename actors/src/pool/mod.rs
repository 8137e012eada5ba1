//! Pools of warm items. Items that take long to create, such as sandboxes, are created before a caller needs them.
//!
//! A pool keeps a number of items of one spec ready. A caller claims an item ([`Pool::claim`]) and then owns it. The item never
//! comes back, and the pool creates another one. The rules:
//!
//! - A claim does not ask the actor. An item that ended while it waited is not given away, but replaced.
//! - One gate admits all starts ([`Pool::admit`]): refills, and creations for sessions that found no item. It limits
//!   how many start at a time and divides the starts by the tenants' shares. Refills start only when no tenant waits,
//!   because otherwise tenants that come often would get more than their share. A full queue is an error
//!   ([`Overloaded`](crate::admission::Overloaded)).
//! - A failed creation is tried again with growing pauses, one at a time. If creation is impossible
//!   ([`SandboxErrorKind::Unsupported`](conjure_sandbox::SandboxErrorKind::Unsupported)), this incarnation does not try
//!   again.
//! - An item that is too old is retired and replaced.
//! - The pool's actor counts as gone only when all its items are. A shutdown leaves none.
//!
//! A pure state machine (`machine`) decides how many items are started and retired.
//!
//! State: items and counts, in memory. A crash of the actor retires its items, and the next incarnation creates new ones. After a
//! crash of the process, the code that created the items removes the leftovers.

mod actor;
mod handle;
mod item;
mod machine;
mod pool_shared;
mod ready_items;
mod stats;

pub use handle::{Pool, PoolStats};
pub use item::{PoolItem, PoolItemFactory};
pub use pool_shared::PoolOptions;

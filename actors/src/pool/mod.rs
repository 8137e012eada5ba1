//! Spares: what takes long to make, made before anybody needs it, such as sandboxes.
//!
//! A pool keeps so many spares of one spec ready. Whoever needs one claims it ([`Pool::claim`]) and has it for itself: it never
//! comes back. Its place is filled again at once. What to rely on:
//!
//! - Claiming asks no actor: a spare that is ready is taken off a shelf. One that has ended while it waited is not given to
//!   anybody; it is put away and replaced.
//! - One gate for all that is started ([`Pool::admit`]): for refills, and for whoever has something made because there was no
//!   spare. So many are started at a time, tenants get their shares, spares are made when none of them waits (else whoever comes often
//!   would have them beside its share), and who finds the queue full is told so
//!   ([`Overloaded`](crate::admission::Overloaded)).
//! - What cannot be made is tried again after longer and longer waits, one at a time, and without a wait for nothing: what is
//!   told to be impossible ([`SandboxErrorKind::Unsupported`](conjure_sandbox::SandboxErrorKind::Unsupported)) is not tried
//!   again by this incarnation.
//! - A spare that is too old is retired, and replaced.
//! - When the pool's actor ends, whatever ends it, it counts as gone when all its spares are. A shutdown leaves none.
//!
//! How many are started and retired when is a pure machine (`machine`). State: spares and counts, in memory. A crash of the
//! actor retires its spares, and its successor makes new ones; after a crash of the host, who made them sweeps.

mod actor;
mod handle;
mod item;
mod machine;
mod pool_shared;
mod ready_items;
mod stats;

pub use handle::{Pool, PoolSpec, PoolStats};
pub use item::{PoolItem, PoolItemFactory};
pub use pool_shared::PoolOptions;

//! Content-addressed storage on disk.
//!
//! A [`Store`] keeps each content once, under its SHA-256 digest, and hard-links it wherever a sandbox needs it. The
//! same skill in a hundred sandboxes takes its space once. A store does not know who owns its content. Two stores
//! share nothing, so each tenant can have its own.
//!
//! # Guarantees
//!
//! - **A digest never names wrong content.** Content is digested while it is written to a temporary file. The file is
//!   hard-linked to its name when it is complete and, by default, on the disk ([`Durability`]). A writer that is killed
//!   leaves a temporary file, which [`Store::sweep`] removes.
//! - **Any number of processes** may insert, link, sweep and collect garbage at the same time. Locks are advisory locks of
//!   the kernel, which end with their holder.
//! - **Linked content stays.** [`Store::collect_garbage`] removes the store's own names only. A sandbox with a link keeps the
//!   content.
//! - Contents are read-only, with mode 0444 or 0555. The mode belongs to the file, so an executable content and a plain one
//!   are two files ([`FileMode`]).
//!
//! # Layout on disk
//!
//! ```text
//! ROOT/version          the version of this format
//! ROOT/lock             locked shortly: shared by insertions and links, exclusively by garbage collection
//! ROOT/temporary/…      contents that are being written, each locked by its writer
//! ROOT/plain/ab/cdef…   contents, mode 0444: two hex digits of the digest, then the other 62
//! ROOT/executable/ab/…  contents, mode 0555
//! ```
//!
//! All calls block. Asynchronous programs run them on threads for blocking work.

mod digest_cache;
mod error;
mod file_mode;
mod gc;
mod ingest;
mod link;
mod stat;
mod store;
mod store_dirs;
mod tree;

pub use error::{StoreError, StoreErrorKind};
pub use file_mode::FileMode;
pub use gc::{GcReport, StoreUsage, SweepReport};
pub use ingest::insert::{ContentWriter, InsertResult};
pub use link::LinkMethod;
pub use store::{Content, Durability, Store, StoreOptions, Verify};
pub use tree::{SkipReason, SkippedEntry, Tree, TreeFile, TreeOptions};

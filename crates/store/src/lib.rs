//! Content by digest, on disk.
//!
//! A [`Store`] keeps each content once, under its SHA-256 digest, and hard-links it wherever a sandbox needs it: the same
//! skill in a hundred sandboxes takes its space once. It does not know whose content it is. One root is one store;
//! nothing is shared between two, so each tenant can have one of its own.
//!
//! # What may be relied on
//!
//! - **Never a wrong content under a digest.** Content is digested while it is written to a temporary file, and gets its
//!   name by a hard link when it is whole and, by default, on the disk ([`Durability`]). Whoever is killed in between leaves
//!   a temporary file, which [`Store::sweep`] removes.
//! - **Any number of processes** may insert, link, sweep and collect at a time. Locks are advisory ones of the kernel, so
//!   they end with their holder.
//! - **What was linked stays.** [`Store::collect`] removes the store's own names; a sandbox that has a link keeps the
//!   content.
//! - **A file that was only linked** ([`Store::insert_link`]) stays what it is by its owner's word alone. It serves for its
//!   digest only where there is no content of the store's own and while its size and dates are what they were; a content
//!   that anybody else inserts is a copy of its own, which no such word can change.
//! - Contents are read-only, mode 0444 or 0555. The mode belongs to the file and not to the name, so what is
//!   executable is another file than the same content that is not ([`Variant`]).
//!
//! # On the disk
//!
//! ```text
//! ROOT/version          the number of this format
//! ROOT/lock             held for moments: shared by who inserts or links, alone by who collects
//! ROOT/temporary/…      what is being written, each locked by its writer
//! ROOT/plain/ab/cdef…   contents, mode 0444: two hex digits of the digest, then the other 62
//! ROOT/executable/ab/…  contents, mode 0555
//! ROOT/frozen/ab/…      links to files of somebody else's: digest, size, time of the last change and inode
//! ```
//!
//! All calls block; an asynchronous host makes them on its blocking threads.

mod cache;
mod collect;
mod draft;
mod error;
mod folders;
mod frozen;
mod insert;
mod link;
mod source;
mod store;
mod tree;
mod walk;

pub use collect::{Collected, Swept, Usage};
pub use error::{StoreError, StoreErrorKind};
pub use insert::{Inserted, Insertion};
pub use link::Linked;
pub use store::{Content, Durability, Store, StoreOptions, Variant, Verify};
pub use tree::{LeftOut, LeftOutReason, Tree, TreeFile, TreeOptions};

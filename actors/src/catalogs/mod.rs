//! The catalog registry: named catalogs of skills, for all tenants or for one, which follow their directories.
//!
//! A [`CatalogRegistry`] is the handle. Lookups ([`CatalogRegistry::catalog`], [`CatalogRegistry::list`],
//! [`CatalogRegistry::get`]) read a published snapshot and ask no actor, so they work while the registry's actor is
//! down. The actor loads catalogs ([`CatalogRegistry::register`], [`CatalogRegistry::reload`]), and loads them again
//! when files change. The registry guarantees:
//!
//! - A snapshot never changes. The next lookup returns the next snapshot.
//! - A broken edit removes nothing. The last good version of a skill stays, also over a crash of the actor
//!   ([`conjure_skill::Reloader`]).
//! - Changes are noticed by file system events: in the directories of the scopes, in those above them (so that a scope
//!   that appears later is noticed too), and in those that links lead to. The actor waits until changes have settled.
//!   If events were lost, everything is scanned. If there are none (watch limits, systems other than Linux), catalogs
//!   are scanned periodically.
//!
//! State: definitions, snapshots and what is known of the files, in memory and beside the actor. After a crash of the
//! actor, the next incarnation continues with them and scans everything. After a crash of the process, the embedder
//! registers them again.

mod actor;
mod catalog_entry;
mod catalog_key;
mod catalog_registry;
mod options;
#[cfg(target_os = "linux")]
mod watch_paths;
#[cfg(target_os = "linux")]
mod watcher;

pub use catalog_entry::CatalogSpec;
pub use catalog_key::{CatalogKey, CatalogName, CatalogNameError};
pub use catalog_registry::{CatalogRegistry, RegistrySpec};
pub use options::{RegistryError, RegistryOptions};

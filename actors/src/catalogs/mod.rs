//! The catalog registry: named catalogs of skills, for all tenants or for one. The registry loads them again when their
//! directories change.
//!
//! A [`CatalogRegistry`] is the handle. Lookups ([`CatalogRegistry::catalog`], [`CatalogRegistry::list`],
//! [`CatalogRegistry::get`]) read a published snapshot and ask no actor. So they work even while the registry's actor
//! does not run. The actor loads catalogs ([`CatalogRegistry::register`], [`CatalogRegistry::reload`]), and loads them
//! again when files change. The registry guarantees:
//!
//! - A snapshot never changes. The next lookup returns the next snapshot.
//! - A broken edit removes nothing. The last good version of a skill stays, even after a crash of the actor
//!   ([`conjure_skill::Reloader`]).
//! - File system events report changes in three kinds of directories: those of the scopes, those above them (a scope
//!   may appear later), and those that links lead to. The actor waits until changes have settled.
//! - If events were lost, the actor scans everything. Where there are no events, because of the limits of watches, it scans
//!   the catalogs periodically.
//!
//! State: definitions, snapshots and reloaders, which know the files. They are in memory, outside the actor. After a
//! crash of the actor, the next incarnation continues with them and scans everything. After a crash of the process, the
//! embedder registers the catalogs again.

mod actor;
mod catalog_entry;
mod catalog_key;
mod catalog_registry;
mod options;
mod watch_paths;
mod watcher;

pub use catalog_entry::CatalogSpec;
pub use catalog_key::{CatalogKey, CatalogName, CatalogNameError};
pub use catalog_registry::CatalogRegistry;
pub use options::{RegistryError, RegistryOptions};

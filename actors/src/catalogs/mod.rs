//! The registry of skills: named catalogs, of all tenants or of one, kept as the folders are.
//!
//! A [`CatalogRegistry`] is the handle: looking up ([`CatalogRegistry::catalog`], [`CatalogRegistry::list`], [`CatalogRegistry::get`]) reads a snapshot that
//! was published and asks no actor, so it goes on while the registry's actor is down. The actor loads
//! ([`CatalogRegistry::register`], [`CatalogRegistry::reload`]), and loads again by itself when files change. What to rely on:
//!
//! - A snapshot never changes. Who holds one keeps it; the next lookup finds the next one.
//! - A broken edit takes nothing away: the last good version stays, also over a crash of the actor
//!   ([`conjure_skill::Reloader`]).
//! - A change is noticed by events of the file system: in the folders of the scopes, in those above them, so that a scope that
//!   is renamed or appears later is noticed too, and in those that links lead to. They are waited for until nothing more
//!   comes for a moment. Where events were lost all is looked at again; where none can be had (watch limits, other
//!   systems than Linux), it is looked at periodically.
//!
//! State: definitions, snapshots and what is known of the files, all in memory, and all beside the actor. In a crash of the
//! actor its successor goes on with them, and looks at everything again; after one of the host they are registered anew.

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

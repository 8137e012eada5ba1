//! The records that are stored beside the sessions.

use std::sync::Arc;

use conjure_journal::Records;

#[cfg(feature = "vaults")]
use crate::runtime::data::vaults::Vaults;
use crate::runtime::handle::Runtime;

impl Runtime {
    /// The records of the runtime: rows of an embedder that are not events, such as its agents and keys. They are in
    /// the same database as the journal, or in memory if the journal is. They stay usable when the database is opened
    /// again.
    ///
    /// A write names the version that it expects, so concurrent writers cannot overwrite each other. The leases of
    /// sessions do not protect records: a process that has lost a session can still write records about it.
    /// [`Tenant::delete`](crate::Tenant) of a tenant deletes its records.
    #[must_use]
    pub fn records(&self) -> Arc<dyn Records> {
        self.inner.tree.journal().records()
    }

    /// The vaults of the runtime: the key of its credentials, and their records.
    #[cfg(feature = "vaults")]
    #[must_use]
    pub fn vaults(&self) -> &Vaults {
        &self.inner.vaults
    }
}

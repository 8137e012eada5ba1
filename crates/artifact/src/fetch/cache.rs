//! What URLs led to, for each tenant by itself.
//!
//! The bytes are the store's; here is what they are, and how to ask whether they are still good. In memory only: after a crash, or in
//! another process, each URL is fetched once more. Bounded: of a tenant the entry that was used least lately goes first, and of tenants
//! the one whose last use is longest ago.

use std::collections::HashMap;
use std::path::PathBuf;

use conjure_base::{Deadline, TenantId};

use super::Fetched;
use super::answer::Validators;
use super::keeping::Keeping;

/// The most entries of a tenant.
const ENTRIES: usize = 256;
/// The most tenants.
const TENANTS: usize = 1_024;

/// Whose, where, and what. The store is part of it, since a digest means nothing in another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) tenant: TenantId,
    pub(crate) store: PathBuf,
    /// In normal form.
    pub(crate) url: String,
}

/// What a URL led to.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) fetched: Fetched,
    pub(crate) validators: Validators,
    /// Where the redirects ended: the validators and the word of how long it may be kept are that server's.
    pub(crate) landed: String,
    pub(crate) keeping: Keeping,
    /// Until then nobody is asked again.
    pub(crate) fresh_until: Deadline,
}

#[derive(Debug)]
struct Used {
    entry: Entry,
    at: u64,
}

#[derive(Debug, Default)]
struct OfTenant {
    entries: HashMap<Key, Used>,
    at: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    tenants: HashMap<TenantId, OfTenant>,
    /// Counts uses.
    now: u64,
}

impl Cache {
    pub(crate) fn get(&mut self, key: &Key) -> Option<Entry> {
        self.now += 1;
        let tenant = self.tenants.get_mut(&key.tenant)?;
        let used = tenant.entries.get_mut(key)?;
        (tenant.at, used.at) = (self.now, self.now);
        Some(used.entry.clone())
    }

    pub(crate) fn put(&mut self, key: Key, entry: Entry) {
        self.now += 1;
        if self.tenants.len() >= TENANTS && !self.tenants.contains_key(&key.tenant) {
            let oldest = self.tenants.iter().min_by_key(|(_, tenant)| tenant.at);
            let oldest = oldest.map(|(tenant, _)| tenant.clone());
            oldest.and_then(|oldest| self.tenants.remove(&oldest));
        }
        let tenant = self.tenants.entry(key.tenant.clone()).or_default();
        if tenant.entries.len() >= ENTRIES && !tenant.entries.contains_key(&key) {
            let oldest = tenant.entries.iter().min_by_key(|(_, used)| used.at);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|oldest| tenant.entries.remove(&oldest));
        }
        tenant.at = self.now;
        tenant.entries.insert(key, Used { entry, at: self.now });
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        if let Some(tenant) = self.tenants.get_mut(&key.tenant) {
            tenant.entries.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;

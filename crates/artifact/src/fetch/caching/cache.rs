//! The URL cache: one LRU cache per tenant, in memory.
//!
//! The bytes are in the store; an entry holds their digest and the validators for revalidation. After a crash, or in another process,
//! each URL is fetched once more. The number of tenants is limited, and that of each tenant's entries. The least recently used is evicted.
//!
//! Evicted bytes stay in their store, whose garbage collection removes them later. They may still be in use, for example by a session
//! in memory or a replacement sandbox.

use std::collections::HashMap;
use std::path::PathBuf;

use conjure_base::{Deadline, TenantId};

use super::freshness::Freshness;
use crate::fetch::FetchedContent;
use crate::fetch::response::Validators;

/// The maximum number of entries per tenant.
const MAX_ENTRIES_PER_TENANT: usize = 256;

/// The maximum number of tenants with entries.
const MAX_TENANTS: usize = 1_024;

/// The key of an entry. It includes the store, because a digest means nothing in another store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    pub(crate) tenant: TenantId,
    pub(crate) store: PathBuf,
    /// The URL in normal form.
    pub(crate) url: String,
}

/// The cached result of fetching a URL.
#[derive(Debug, Clone)]
pub(crate) struct CacheEntry {
    pub(crate) fetched: FetchedContent,
    pub(crate) validators: Validators,
    /// The URL after redirects. Validators and freshness are those of its server.
    pub(crate) final_url: String,
    pub(crate) freshness: Freshness,
    /// The entry is used without revalidation until then.
    pub(crate) fresh_until: Deadline,
}

#[derive(Debug)]
struct LruEntry {
    entry: CacheEntry,
    last_used: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    tenants: HashMap<TenantId, HashMap<CacheKey, LruEntry>>,
    /// The logical clock: counts uses.
    now: u64,
}

impl Cache {
    /// Returns an entry, and marks it as used.
    pub(crate) fn get(&mut self, key: &CacheKey) -> Option<CacheEntry> {
        self.now += 1;
        let found = self.tenants.get_mut(&key.tenant)?.get_mut(key)?;
        found.last_used = self.now;
        Some(found.entry.clone())
    }

    /// Inserts or replaces an entry. If the tenant has the maximum, its least recently used entry is evicted. If there
    /// is the maximum of tenants, the least recently used tenant is.
    pub(crate) fn put(&mut self, key: CacheKey, entry: CacheEntry) {
        self.now += 1;
        if self.tenants.len() >= MAX_TENANTS && !self.tenants.contains_key(&key.tenant) {
            let last_used =
                |entries: &HashMap<_, LruEntry>| entries.values().map(|entry| entry.last_used).max();
            let oldest = self.tenants.iter().min_by_key(|(_, entries)| last_used(entries));
            let oldest = oldest.map(|(tenant, _)| tenant.clone());
            oldest.and_then(|oldest| self.tenants.remove(&oldest));
        }
        let entries = self.tenants.entry(key.tenant.clone()).or_default();
        if entries.len() >= MAX_ENTRIES_PER_TENANT && !entries.contains_key(&key) {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.last_used);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|oldest| entries.remove(&oldest));
        }
        entries.insert(key, LruEntry { entry, last_used: self.now });
    }

    pub(crate) fn remove(&mut self, key: &CacheKey) {
        if let Some(entries) = self.tenants.get_mut(&key.tenant) {
            entries.remove(key);
        }
    }

    /// Removes all entries of a tenant.
    pub(crate) fn remove_tenant(&mut self, tenant: &TenantId) {
        self.tenants.remove(tenant);
    }
}

#[cfg(test)]
mod tests;

//! The URL cache: one LRU cache per tenant, in memory.
//!
//! The bytes are in the store; an entry holds their digest and the validators for revalidation. After a crash, or in another process,
//! each URL is fetched once more. Entries and bytes are bounded. The byte limit is passed with each use, because it may change. A
//! tenant's least recently used entry is evicted first; of the tenants, the least recently used one.
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
/// The maximum number of tenants.
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

impl CacheEntry {
    const fn size(&self) -> u64 {
        self.fetched.content.size
    }
}

#[derive(Debug)]
struct LruEntry {
    entry: CacheEntry,
    last_used: u64,
}

#[derive(Debug, Default)]
struct TenantCache {
    entries: HashMap<CacheKey, LruEntry>,
    /// The bytes of all entries.
    bytes: u64,
    last_used: u64,
}

impl TenantCache {
    fn remove(&mut self, key: &CacheKey) {
        if let Some(removed) = self.entries.remove(key) {
            self.bytes -= removed.entry.size();
        }
    }

    /// Evicts least recently used entries until these limits hold.
    fn shrink(&mut self, entries: usize, bytes: u64) {
        while self.entries.len() > entries || self.bytes > bytes {
            let oldest = self.entries.iter().min_by_key(|(_, used)| used.last_used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { return };
            self.remove(&oldest);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    tenants: HashMap<TenantId, TenantCache>,
    /// The logical clock: counts uses.
    now: u64,
}

impl Cache {
    /// Returns an entry, after evicting what exceeds the tenant's current byte limit.
    pub(crate) fn get(&mut self, key: &CacheKey, max_bytes: u64) -> Option<CacheEntry> {
        self.now += 1;
        if let Some(used) = self.tenants.get_mut(&key.tenant)?.entries.get_mut(key) {
            used.last_used = self.now;
        }
        self.shrink(&key.tenant, max_entries(max_bytes), max_bytes);
        self.tenants.get(&key.tenant)?.entries.get(key).map(|used| used.entry.clone())
    }

    /// Inserts or replaces an entry. One that is larger than the tenant's limit is not inserted, and evicts nothing else.
    pub(crate) fn put(&mut self, key: CacheKey, entry: CacheEntry, max_bytes: u64) {
        self.now += 1;
        self.remove(&key);
        let (size, max_entries) = (entry.size(), max_entries(max_bytes));
        let (Some(bytes), Some(entries)) = (max_bytes.checked_sub(size), max_entries.checked_sub(1)) else {
            self.shrink(&key.tenant, max_entries, max_bytes);
            return;
        };
        self.shrink(&key.tenant, entries, bytes);
        self.ensure_tenant_slot(&key.tenant);
        let tenant = self.tenants.entry(key.tenant.clone()).or_default();
        tenant.last_used = self.now;
        tenant.bytes += size;
        tenant.entries.insert(key, LruEntry { entry, last_used: self.now });
    }

    pub(crate) fn remove(&mut self, key: &CacheKey) {
        if let Some(tenant) = self.tenants.get_mut(&key.tenant) {
            tenant.remove(key);
            self.drop_empty(&key.tenant);
        }
    }

    /// The bytes of a tenant's entries. Equal content of two URLs counts twice.
    pub(crate) fn tenant_bytes(&self, tenant: &TenantId) -> u64 {
        self.tenants.get(tenant).map_or(0, |tenant| tenant.bytes)
    }

    /// Removes all entries of a tenant.
    pub(crate) fn remove_tenant(&mut self, tenant: &TenantId) {
        self.tenants.remove(tenant);
    }

    /// Marks a tenant as used and evicts what exceeds these limits.
    fn shrink(&mut self, tenant: &TenantId, entries: usize, bytes: u64) {
        if let Some(known) = self.tenants.get_mut(tenant) {
            known.last_used = self.now;
            known.shrink(entries, bytes);
            self.drop_empty(tenant);
        }
    }

    /// Removes a tenant without entries.
    fn drop_empty(&mut self, tenant: &TenantId) {
        if self.tenants.get(tenant).is_some_and(|known| known.entries.is_empty()) {
            self.tenants.remove(tenant);
        }
    }

    /// Evicts the least recently used tenant if there is no slot for this one.
    fn ensure_tenant_slot(&mut self, tenant: &TenantId) {
        if self.tenants.len() >= MAX_TENANTS && !self.tenants.contains_key(tenant) {
            let oldest = self.tenants.iter().min_by_key(|(_, known)| known.last_used);
            let oldest = oldest.map(|(tenant, _)| tenant.clone());
            oldest.and_then(|oldest| self.tenants.remove(&oldest));
        }
    }
}

/// The maximum number of entries of a tenant with this byte limit. A limit of 0 excludes empty content too.
const fn max_entries(max_bytes: u64) -> usize {
    if max_bytes == 0 { 0 } else { MAX_ENTRIES_PER_TENANT }
}

#[cfg(test)]
mod tests;

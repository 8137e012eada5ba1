//! What URLs led to, for each tenant by itself.
//!
//! The bytes are the store's; here is what they are, and how to ask whether they are still good. In memory only: after a crash, or in
//! another process, each URL is fetched once more. Bounded, by entries and by the bytes that they stand for, by a limit that is told with
//! each use, as it may change: of a tenant the entry that was used least lately goes first, and of tenants the one whose last use is
//! longest ago.
//!
//! The bytes of what goes stay in their store, which removes what nobody used for long. They are not removed at once: somebody may have
//! them whom no link tells of, such as a session in memory, or a sandbox that is to take the place of one that ended.

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

impl Entry {
    const fn size(&self) -> u64 {
        self.fetched.content.size
    }
}

#[derive(Debug)]
struct Used {
    entry: Entry,
    at: u64,
}

#[derive(Debug, Default)]
struct OfTenant {
    entries: HashMap<Key, Used>,
    /// Those of all entries together.
    bytes: u64,
    at: u64,
}

impl OfTenant {
    fn remove(&mut self, key: &Key) {
        if let Some(removed) = self.entries.remove(key) {
            self.bytes -= removed.entry.size();
        }
    }

    /// Removes what was used least lately, until no more is left than this.
    fn shrink(&mut self, entries: usize, bytes: u64) {
        while self.entries.len() > entries || self.bytes > bytes {
            let oldest = self.entries.iter().min_by_key(|(_, used)| used.at);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { return };
            self.remove(&oldest);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    tenants: HashMap<TenantId, OfTenant>,
    /// Counts uses.
    now: u64,
}

impl Cache {
    /// What is known, where the tenant may have so many bytes by now: what is more goes first.
    pub(crate) fn get(&mut self, key: &Key, most_bytes: u64) -> Option<Entry> {
        self.now += 1;
        if let Some(used) = self.tenants.get_mut(&key.tenant)?.entries.get_mut(key) {
            used.at = self.now;
        }
        self.shrink(&key.tenant, most_entries(most_bytes), most_bytes);
        self.tenants.get(&key.tenant)?.entries.get(key).map(|used| used.entry.clone())
    }

    /// Notes it, in the place of what the key led to before. What is larger than all that the tenant may have is not noted, and takes
    /// no other's place.
    pub(crate) fn put(&mut self, key: Key, entry: Entry, most_bytes: u64) {
        self.now += 1;
        self.remove(&key);
        let (size, most_entries) = (entry.size(), most_entries(most_bytes));
        let (Some(bytes), Some(entries)) = (most_bytes.checked_sub(size), most_entries.checked_sub(1)) else {
            self.shrink(&key.tenant, most_entries, most_bytes);
            return;
        };
        self.shrink(&key.tenant, entries, bytes);
        self.make_place(&key.tenant);
        let tenant = self.tenants.entry(key.tenant.clone()).or_default();
        tenant.at = self.now;
        tenant.bytes += size;
        tenant.entries.insert(key, Used { entry, at: self.now });
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        if let Some(tenant) = self.tenants.get_mut(&key.tenant) {
            tenant.remove(key);
            self.drop_empty(&key.tenant);
        }
    }

    /// How many bytes the tenant's entries stand for. Those that are the same count for each URL.
    pub(crate) fn bytes_of(&self, tenant: &TenantId) -> u64 {
        self.tenants.get(tenant).map_or(0, |tenant| tenant.bytes)
    }

    /// Removes everything of a tenant.
    pub(crate) fn forget(&mut self, tenant: &TenantId) {
        self.tenants.remove(tenant);
    }

    /// Leaves a tenant, which uses something just now, no more than this.
    fn shrink(&mut self, tenant: &TenantId, entries: usize, bytes: u64) {
        if let Some(known) = self.tenants.get_mut(tenant) {
            known.at = self.now;
            known.shrink(entries, bytes);
            self.drop_empty(tenant);
        }
    }

    /// A tenant of which nothing is known takes no other's place.
    fn drop_empty(&mut self, tenant: &TenantId) {
        if self.tenants.get(tenant).is_some_and(|known| known.entries.is_empty()) {
            self.tenants.remove(tenant);
        }
    }

    /// Sees to it that something of the tenant can be noted.
    fn make_place(&mut self, tenant: &TenantId) {
        if self.tenants.len() >= TENANTS && !self.tenants.contains_key(tenant) {
            let oldest = self.tenants.iter().min_by_key(|(_, known)| known.at);
            let oldest = oldest.map(|(tenant, _)| tenant.clone());
            oldest.and_then(|oldest| self.tenants.remove(&oldest));
        }
    }
}

/// The most entries of a tenant that may have so many bytes: where that is none, also none that are empty.
const fn most_entries(most_bytes: u64) -> usize {
    if most_bytes == 0 { 0 } else { ENTRIES }
}

#[cfg(test)]
mod tests;

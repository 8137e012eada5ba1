use conjure_base::Digest;
use conjure_conversation::ArtifactContent;

use super::*;

fn key(tenant: usize, url: usize) -> CacheKey {
    CacheKey {
        tenant: TenantId::new(format!("tenant-{tenant}")).unwrap(),
        store: PathBuf::from("/"),
        url: url.to_string(),
    }
}

fn entry(url: usize) -> CacheEntry {
    let content = ArtifactContent { digest: Digest::of_bytes(b""), size: 0 };
    let fetched = FetchedContent { content, content_type: "text/plain".to_owned(), name: url.to_string() };
    CacheEntry {
        fetched,
        validators: Validators::default(),
        final_url: url.to_string(),
        freshness: Freshness::Default,
        fresh_until: Deadline::NEVER,
    }
}

fn name(cache: &mut Cache, tenant: usize, url: usize) -> Option<String> {
    cache.get(&key(tenant, url)).map(|entry| entry.fetched.name)
}

#[test]
fn the_least_recently_used_entry_of_a_tenant_is_evicted() {
    let mut cache = Cache::default();
    cache.put(key(2, 0), entry(0));
    for url in 0..MAX_ENTRIES_PER_TENANT {
        cache.put(key(1, url), entry(url));
    }
    assert_eq!(name(&mut cache, 1, 0).as_deref(), Some("0"));
    cache.put(key(1, MAX_ENTRIES_PER_TENANT), entry(MAX_ENTRIES_PER_TENANT));
    assert_eq!(name(&mut cache, 1, 1), None);
    for url in [0, 2, MAX_ENTRIES_PER_TENANT] {
        assert_eq!(name(&mut cache, 1, url), Some(url.to_string()));
    }
    // One that is there already takes no other's place.
    cache.put(key(1, 2), entry(7));
    assert_eq!(name(&mut cache, 1, 2).as_deref(), Some("7"));
    assert_eq!(name(&mut cache, 1, 3).as_deref(), Some("3"));
    assert_eq!(name(&mut cache, 2, 0).as_deref(), Some("0"), "another tenant's");
}

#[test]
fn the_least_recently_used_tenant_is_evicted() {
    let mut cache = Cache::default();
    for tenant in 0..MAX_TENANTS {
        cache.put(key(tenant, 0), entry(0));
    }
    assert!(name(&mut cache, 0, 0).is_some());
    cache.put(key(MAX_TENANTS, 0), entry(0));
    assert_eq!(name(&mut cache, 1, 0), None);
    for tenant in [0, 2, MAX_TENANTS] {
        assert!(name(&mut cache, tenant, 0).is_some(), "{tenant}");
    }
}

#[test]
fn cache_entries_are_separate_per_tenant_and_store() {
    let mut cache = Cache::default();
    cache.put(key(1, 0), entry(0));
    assert_eq!(name(&mut cache, 2, 0), None);
    assert!(cache.get(&CacheKey { store: PathBuf::from("/other"), ..key(1, 0) }).is_none());
    cache.remove(&key(2, 0));
    assert!(name(&mut cache, 1, 0).is_some());
    cache.remove(&key(1, 0));
    assert_eq!(name(&mut cache, 1, 0), None);
    cache.put(key(1, 0), entry(0));
    cache.put(key(2, 0), entry(0));
    cache.remove_tenant(&key(1, 0).tenant);
    assert_eq!(name(&mut cache, 1, 0), None);
    assert!(name(&mut cache, 2, 0).is_some());
}

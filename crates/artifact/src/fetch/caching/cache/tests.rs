use conjure_base::Digest;
use conjure_conversation::ArtifactContent;
use proptest::prelude::*;

use super::*;

fn key(tenant: usize, url: usize) -> CacheKey {
    CacheKey {
        tenant: TenantId::new(format!("tenant-{tenant}")).unwrap(),
        store: PathBuf::from("/"),
        url: url.to_string(),
    }
}

/// More than is ever used here.
const MOST: u64 = 1_000;

fn entry(url: usize) -> CacheEntry {
    sized(url, 0)
}

fn sized(url: usize, size: u64) -> CacheEntry {
    let content = ArtifactContent { digest: Digest::of_bytes(b""), size };
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
    cache.get(&key(tenant, url), MOST).map(|entry| entry.fetched.name)
}

#[test]
fn of_a_tenant_the_entry_that_was_not_used_for_longest_goes_first() {
    let mut cache = Cache::default();
    cache.put(key(2, 0), entry(0), MOST);
    for url in 0..MAX_ENTRIES_PER_TENANT {
        cache.put(key(1, url), entry(url), MOST);
    }
    assert_eq!(name(&mut cache, 1, 0).as_deref(), Some("0"));
    cache.put(key(1, MAX_ENTRIES_PER_TENANT), entry(MAX_ENTRIES_PER_TENANT), MOST);
    assert_eq!(name(&mut cache, 1, 1), None);
    for url in [0, 2, MAX_ENTRIES_PER_TENANT] {
        assert_eq!(name(&mut cache, 1, url), Some(url.to_string()));
    }
    // One that is there already takes no other's place.
    cache.put(key(1, 2), entry(7), MOST);
    assert_eq!(name(&mut cache, 1, 2).as_deref(), Some("7"));
    assert_eq!(name(&mut cache, 1, 3).as_deref(), Some("3"));
    assert_eq!(name(&mut cache, 2, 0).as_deref(), Some("0"), "another tenant's");
}

#[test]
fn of_tenants_the_one_that_was_idle_for_longest_goes_first() {
    let mut cache = Cache::default();
    for tenant in 0..MAX_TENANTS {
        cache.put(key(tenant, 0), entry(0), MOST);
    }
    assert!(name(&mut cache, 0, 0).is_some());
    cache.put(key(MAX_TENANTS, 0), entry(0), MOST);
    assert_eq!(name(&mut cache, 1, 0), None);
    assert!(name(&mut cache, 0, 0).is_some() && name(&mut cache, MAX_TENANTS, 0).is_some());
}

#[test]
fn nothing_of_one_tenant_or_store_is_anothers() {
    let mut cache = Cache::default();
    cache.put(key(1, 0), entry(0), MOST);
    assert_eq!(name(&mut cache, 2, 0), None);
    assert!(cache.get(&CacheKey { store: PathBuf::from("/other"), ..key(1, 0) }, MOST).is_none());
    cache.remove(&key(2, 0));
    assert!(name(&mut cache, 1, 0).is_some());
    cache.remove(&key(1, 0));
    assert_eq!(name(&mut cache, 1, 0), None);
}

#[test]
fn of_a_tenant_no_more_bytes_are_noted_than_it_may_have() {
    let mut cache = Cache::default();
    cache.put(key(2, 0), sized(0, 900), MOST);
    for url in 0..3 {
        cache.put(key(1, url), sized(url, 10), 30);
    }
    assert_eq!(name(&mut cache, 1, 0).as_deref(), Some("0"));
    cache.put(key(1, 3), sized(3, 11), 30);
    assert_eq!(cache.tenant_bytes(&key(1, 0).tenant), 21, "two had to go for it");
    assert!(name(&mut cache, 1, 1).is_none() && name(&mut cache, 1, 2).is_none());
    // One that grows in its place.
    cache.put(key(1, 0), sized(0, 19), 30);
    assert_eq!(cache.tenant_bytes(&key(1, 0).tenant), 30);
    cache.put(key(1, 0), sized(0, 20), 30);
    assert!(name(&mut cache, 1, 3).is_none());
    // One that is too large takes nobody's place but that of what it was before.
    cache.put(key(1, 4), sized(4, 31), 30);
    assert_eq!(name(&mut cache, 1, 0).as_deref(), Some("0"));
    cache.put(key(1, 0), sized(0, 31), 30);
    assert_eq!((name(&mut cache, 1, 0), cache.tenant_bytes(&key(1, 0).tenant)), (None, 0));
    assert_eq!(cache.tenant_bytes(&key(2, 0).tenant), 900, "another tenant's");
}

#[test]
fn a_tenant_that_may_have_less_than_before_has_less_at_the_next_use() {
    let mut cache = Cache::default();
    for url in 0..3 {
        cache.put(key(1, url), sized(url, 10), 30);
    }
    // Whatever is asked for, even what is not there.
    assert!(cache.get(&key(1, 7), 20).is_none());
    assert_eq!(cache.tenant_bytes(&key(1, 0).tenant), 20);
    assert!(cache.get(&key(1, 0), 20).is_none());
    assert!(cache.get(&key(1, 1), 10).is_some(), "what is asked for is used, and goes last");
    assert!(cache.get(&key(1, 2), 10).is_none());
    assert!(cache.get(&key(1, 1), 9).is_none());
    cache.put(key(1, 0), sized(0, 9), 9);
    assert!(cache.get(&key(1, 0), 9).is_some());
}

#[test]
fn a_tenant_that_may_have_nothing_has_nothing_that_is_empty_either() {
    let mut cache = Cache::default();
    cache.put(key(1, 0), entry(0), MOST);
    assert!(cache.get(&key(1, 0), 0).is_none());
    cache.put(key(1, 0), entry(0), 0);
    assert_eq!(name(&mut cache, 1, 0), None);
    assert!(cache.tenants.is_empty(), "and takes no other tenant's place");
    cache.put(key(1, 0), entry(0), 1);
    assert!(name(&mut cache, 1, 0).is_some());
    cache.remove_tenant(&key(1, 0).tenant);
    assert!(cache.tenants.is_empty());
}

#[test]
fn what_is_too_large_takes_no_other_tenants_place() {
    let mut cache = Cache::default();
    for tenant in 0..MAX_TENANTS {
        cache.put(key(tenant, 0), entry(0), MOST);
    }
    cache.put(key(MAX_TENANTS, 0), sized(0, 2), 1);
    assert!(name(&mut cache, 0, 0).is_some());
}

/// What is done to a cache.
#[derive(Debug, Clone, Copy)]
enum Act {
    Get { url: usize, most: u64 },
    Put { url: usize, size: u64, most: u64 },
    Remove { url: usize },
}

fn act() -> impl Strategy<Value = Act> {
    let url = || 0..8_usize;
    // Most of the time the limit is the same.
    let most = || prop_oneof![4 => Just(20_u64), 1 => 0..40_u64];
    prop_oneof![
        2 => (url(), most()).prop_map(|(url, most)| Act::Get { url, most }),
        4 => (url(), 0..24_u64, most()).prop_map(|(url, size, most)| Act::Put { url, size, most }),
        1 => url().prop_map(|url| Act::Remove { url }),
    ]
}

/// The URLs and their sizes, that which was used last at the end.
#[derive(Debug, Default)]
struct Naive(Vec<(usize, u64)>);

impl Naive {
    fn act(&mut self, act: Act) {
        let (Act::Get { url, .. } | Act::Put { url, .. } | Act::Remove { url }) = act;
        let at = self.0.iter().position(|(known, _)| *known == url);
        let known = at.map(|at| self.0.remove(at));
        match act {
            Act::Remove { .. } => {}
            Act::Get { most, .. } => {
                self.0.extend(known);
                self.shrink(most);
            }
            Act::Put { size, most, .. } => {
                // What does not fit is as if it had never come.
                if size <= most {
                    self.0.push((url, size));
                }
                self.shrink(most);
            }
        }
    }

    fn shrink(&mut self, most: u64) {
        while !self.0.is_empty() && (most == 0 || self.bytes() > most) {
            self.0.remove(0);
        }
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, size)| size).sum()
    }
}

proptest! {
    #[test]
    fn it_has_what_a_naive_one_has(acts in proptest::collection::vec(act(), 0..60)) {
        let (mut cache, mut naive) = (Cache::default(), Naive::default());
        let untouched = key(2, 0);
        cache.put(untouched.clone(), sized(0, 7), MOST);
        for act in acts {
            let got = match act {
                Act::Get { url, most } => cache.get(&key(1, url), most).map(|entry| entry.size()),
                Act::Put { url, size, most } => {
                    cache.put(key(1, url), sized(url, size), most);
                    None
                }
                Act::Remove { url } => {
                    cache.remove(&key(1, url));
                    None
                }
            };
            naive.act(act);
            if let Act::Get { url, .. } = act {
                let known = naive.0.iter().find(|(known, _)| *known == url);
                prop_assert_eq!(got, known.map(|(_, size)| *size));
            }
            let whose = key(1, 0).tenant;
            prop_assert_eq!(cache.tenant_bytes(&whose), naive.bytes());
            let entries = cache.tenants.get(&whose).into_iter().flat_map(|tenant| &tenant.entries);
            let mut entries: Vec<_> = entries.map(|(key, used)| (used.last_used, key.url.clone(), used.entry.size())).collect();
            entries.sort_unstable();
            let entries: Vec<_> = entries.into_iter().map(|(_, url, size)| (url, size)).collect();
            let expected: Vec<_> = naive.0.iter().map(|(url, size)| (url.to_string(), *size)).collect();
            prop_assert_eq!(entries, expected);
        }
        prop_assert_eq!(cache.tenant_bytes(&untouched.tenant), 7);
    }
}

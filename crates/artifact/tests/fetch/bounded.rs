//! How much of what was fetched is kept: as many bytes of a tenant as the host and the tenant may have.

use conjure_artifact::{Fetch as _, FetchRequest, UrlCache};

use crate::support::{Bed, Site, ok};

/// Answers with so many bytes as the path says.
async fn sized() -> Site {
    Site::answering(|head| {
        let size = head.path().trim_start_matches('/').split('?').next().unwrap().parse().unwrap();
        ok("ETag: \"v\"\r\n", "x".repeat(size))
    })
    .await
}

fn bed(most: u64) -> Bed {
    Bed::with(|settings| settings.options.cache_max_size = most)
}

/// Fetches as a tenant that may have so many bytes, and says whether anybody was asked.
async fn asks(bed: &Bed, site: &Site, path: &str, cache_bytes: u64) -> bool {
    let (before, url) = (site.heads().len(), site.good(path));
    let request = FetchRequest { cache_bytes, ..bed.request(&url) };
    let fetched = bed.fetch.fetch(request).await.unwrap();
    let size = path.trim_start_matches('/').split('?').next().unwrap().parse().unwrap();
    assert_eq!((fetched.content.size, bed.bytes(&fetched).len() as u64), (size, size), "{path}");
    site.heads().len() > before
}

#[tokio::test]
async fn what_was_used_least_lately_is_asked_for_again() {
    let site = sized().await;
    let bed = bed(30);
    for path in ["/10?a", "/10?b", "/10?c"] {
        assert!(asks(&bed, &site, path, u64::MAX).await);
    }
    assert!(!asks(&bed, &site, "/10?a", u64::MAX).await);
    assert!(asks(&bed, &site, "/5?d", u64::MAX).await);
    assert_eq!(bed.fetch.cached_bytes(&bed.tenant), 25);
    for path in ["/10?a", "/10?c", "/5?d"] {
        assert!(!asks(&bed, &site, path, u64::MAX).await, "{path}");
    }
    assert!(asks(&bed, &site, "/10?b", u64::MAX).await);
    let last = site.heads().pop().unwrap();
    assert_eq!(last.header("if-none-match"), None, "nothing is known of it any more");
}

#[tokio::test]
async fn what_is_larger_than_all_that_is_kept_is_fetched_each_time_and_displaces_nothing() {
    let site = sized().await;
    let bed = bed(30);
    assert!(asks(&bed, &site, "/30", u64::MAX).await);
    for _ in 0..2 {
        assert!(asks(&bed, &site, "/31", u64::MAX).await);
    }
    assert!(!asks(&bed, &site, "/30", u64::MAX).await);
    assert_eq!(bed.fetch.cached_bytes(&bed.tenant), 30);
}

#[tokio::test]
async fn a_tenants_own_quota_counts_where_it_is_less_and_from_the_next_use_on() {
    let site = sized().await;
    let bed = bed(30);
    let other = Bed::of(bed.fetch.clone(), "tenant-2");
    for path in ["/10?a", "/10?b", "/10?c"] {
        assert!(asks(&bed, &site, path, u64::MAX).await);
        assert!(asks(&other, &site, path, 1_000).await);
    }
    assert!(asks(&other, &site, "/10?d", 1_000).await, "more than the host has for each is for nobody");
    assert_eq!(other.fetch.cached_bytes(&other.tenant), 30);
    // It may have less than before.
    assert!(!asks(&bed, &site, "/10?c", 10).await);
    assert_eq!(bed.fetch.cached_bytes(&bed.tenant), 10);
    assert!(asks(&bed, &site, "/10?a", 10).await);
    // Nothing at all, also of what is empty.
    for path in ["/10?a", "/0", "/0"] {
        assert!(asks(&bed, &site, path, 0).await, "{path}");
        assert_eq!(bed.fetch.cached_bytes(&bed.tenant), 0);
    }
    // As much as before.
    assert!(asks(&bed, &site, "/10?a", u64::MAX).await);
    assert!(!asks(&bed, &site, "/10?a", u64::MAX).await);
    assert_eq!(other.fetch.cached_bytes(&other.tenant), 30, "another tenant's");
}

#[tokio::test]
async fn a_tenant_that_is_forgotten_has_nothing_and_others_have_theirs() {
    let site = sized().await;
    let bed = Bed::new();
    let other = Bed::of(bed.fetch.clone(), "tenant-2");
    for bed in [&bed, &other] {
        assert!(asks(bed, &site, "/10", u64::MAX).await);
    }
    bed.fetch.forget_tenant(&bed.tenant);
    assert_eq!((bed.fetch.cached_bytes(&bed.tenant), bed.fetch.cached_bytes(&other.tenant)), (0, 10));
    assert!(asks(&bed, &site, "/10", u64::MAX).await);
    assert!(!asks(&other, &site, "/10", u64::MAX).await);
}

#[tokio::test]
async fn nothing_is_kept_where_the_host_keeps_nothing() {
    let site = sized().await;
    for bed in [bed(0), Bed::with(|settings| settings.options.cache = UrlCache::Off)] {
        for _ in 0..2 {
            assert!(asks(&bed, &site, "/10", u64::MAX).await);
        }
        assert_eq!(bed.fetch.cached_bytes(&bed.tenant), 0);
    }
}

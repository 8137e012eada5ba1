use super::*;

#[tokio::test]
async fn the_local_host_name_is_resolved() {
    let found = SystemResolver::default().resolve(&"localhost".parse().unwrap()).await.unwrap();
    assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
}

#[tokio::test]
async fn the_number_of_simultaneous_lookups_is_limited() {
    let resolver = SystemResolver { lookup_permits: Arc::new(Semaphore::new(0)) };
    let mut lookup = resolver.resolve(&"localhost".parse().unwrap());
    assert!(futures_util::poll!(&mut lookup).is_pending());
    resolver.lookup_permits.add_permits(1);
    assert!(lookup.await.is_ok());
    // The permit is free again once the thread is.
    assert!(resolver.lookup_permits.acquire().await.is_ok());
}

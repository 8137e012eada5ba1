use super::*;

#[tokio::test]
async fn the_machine_knows_its_own_name() {
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

#[tokio::test]
async fn a_sequence_of_answers_ends_with_the_last_one() {
    let name: HostName = "a.example".parse().unwrap();
    let answers = ["1.1.1.1", "1.1.1.2"].map(|address| vec![address.parse().unwrap()]);
    let resolver = StaticResolver::new().with_sequence(name.clone(), answers.clone());
    let ask = async || resolver.clone().resolve(&name).await.unwrap();
    assert_eq!(
        [ask().await, ask().await, ask().await],
        [answers[0].clone(), answers[1].clone(), answers[1].clone()]
    );
    let unknown = resolver.resolve(&"b.example".parse().unwrap()).await.unwrap_err();
    assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
}

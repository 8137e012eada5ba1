//! A large artifact: memory stays constant while it is registered, resolved and read. The test is a program of its own, because
//! it measures its own memory.

use std::fs::{self, File};
use std::sync::Arc;

use conjure_artifact::{
    ArtifactIngestor, ArtifactOptions, ArtifactUri, ReferenceResolver, Registration, RegistrationSource,
};
use conjure_base::{Deadline, TenantId};
use conjure_store::{Durability, Store, StoreOptions};
use futures_util::StreamExt as _;
use tokio_util::sync::CancellationToken;

/// Ten times what its memory may grow by.
const SIZE: u64 = 256 << 20;

#[tokio::test]
async fn a_large_artifact_takes_no_more_memory_than_a_piece_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { durability: Durability::Process, ..StoreOptions::default() };
    let store = Store::open_with(&dir.path().join("store"), options).unwrap();
    let path = dir.path().join("large.bin");
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    let options = Arc::new(ArtifactOptions { max_file_size: SIZE, ..ArtifactOptions::default() });
    let (intake, cancel) = (ArtifactIngestor::new(Arc::clone(&options)), CancellationToken::new());
    let resolver = ReferenceResolver::new(TenantId::new("acme").unwrap(), store.clone(), options);

    // The most memory that this process has had, in bytes.
    let peak = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    let before = peak();
    let source = RegistrationSource::file(&path);
    let registration = Registration::new("large".parse().unwrap(), source);
    let artifact = intake.ingest(registration, &store, &cancel).await.unwrap();
    assert_eq!(artifact.size(), Some(SIZE));
    let uri = ArtifactUri::parse("file://large").unwrap();
    let resolved = resolver.resolve(&uri, &[artifact.into()], Deadline::NEVER, &cancel).await.unwrap();
    let mut stream = resolver.open(&resolved).await.unwrap().stream;
    let mut read = 0;
    while let Some(piece) = stream.next().await {
        read += piece.unwrap().len() as u64;
    }
    assert_eq!(read, SIZE);
    let usage = store.usage().unwrap();
    assert_eq!((usage.contents, usage.temporary), (1, 0));
    let more = peak() - before;
    assert!(more < 24 << 20, "it took {more} bytes");
}

//! The memory of a large fetch. The test runs alone in its process, because it measures the process.
#![expect(
    clippy::unwrap_used,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

use std::sync::Arc;
use std::time::Duration;

use conjure_artifact::{ArtifactOptions, Fetch as _, FetchRequest, HttpFetch};
use conjure_base::{Deadline, SystemClock, TenantId};
use conjure_egress::{AddressPolicy, Egress, EgressPolicy};
use conjure_store::Store;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const PIECE: usize = 1 << 20;
const PIECES: usize = 256;

/// The most memory that this process ever had, in KiB.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn hashing_256_mib_uses_a_few_mib_of_memory() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", PIECE * PIECES);
        stream.write_all(head.as_bytes()).await.unwrap();
        let piece = vec![b'x'; PIECE];
        for _ in 0..PIECES {
            stream.write_all(&piece).await.unwrap();
        }
    };
    let options = ArtifactOptions {
        allowed_schemes: vec!["http".to_owned()],
        blocked_hosts: Vec::new(),
        url_max_size: 1 << 30,
        // It is about memory: a machine that is busy may take its time.
        url_timeout: Duration::from_secs(3600),
        ..ArtifactOptions::default()
    };
    let addresses = AddressPolicy::public_only().with_allowed([address.ip().into()]);
    let egress = Egress::new(EgressPolicy::Full).with_addresses(addresses);
    let fetch = HttpFetch::new(Arc::new(options), egress, Arc::new(SystemClock)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store")).unwrap();
    let (url, tenant) = (format!("http://{address}/"), TenantId::new("tenant").unwrap());
    let before = peak();
    let request = FetchRequest {
        url: &url,
        tenant: &tenant,
        store: &store,
        network: &EgressPolicy::Full,
        deadline: Deadline::NEVER,
        cancel: CancellationToken::new(),
    };
    let (fetched, ()) = tokio::join!(fetch.fetch(request), server);
    assert_eq!(fetched.unwrap().content.size, (PIECE * PIECES) as u64);
    let grown = peak() - before;
    assert!(grown < 24 << 10, "{grown} KiB more than the {before} KiB before");
}

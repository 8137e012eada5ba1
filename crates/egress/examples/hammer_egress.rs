//! Fuzzes the parsers of a sandbox's input with mutated samples: no panic, no disagreement, bounded memory.
//!
//! `cargo run --release -p conjure-egress --example hammer_egress -- host|hello|socks|http CASES SEED`. The same seed gives
//! the same cases. A case that fails ends the run and names its number. `host` compares with the reader of the URL
//! Standard, `hello` with the one of rustls, in one piece and in chunks; `socks` and `http` use a proxy without a
//! network, which must refuse or close, whatever it reads.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a campaign is run by hand, prints what it found and fails loudly"
)]

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_egress::{ClientHello, Egress, EgressObserver, EgressPolicy, HelloReader, Host, Refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, cases, seed] = &arguments[..] else {
        panic!("usage: hammer_egress host|hello|socks|http CASES SEED")
    };
    let (cases, seed): (u64, u64) = (cases.parse().unwrap(), seed.parse().unwrap());
    let samples = match target.as_str() {
        "host" => host_samples(),
        "hello" => hello_samples(),
        "socks" => socks_samples(),
        "http" => http_samples(),
        other => panic!("no target `{other}`"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let proxy = Proxy::new();
    let mut accepted = 0_u64;
    for case in 0..cases {
        let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9).wrapping_add(case));
        let bytes = mutate(&samples, &mut random);
        let outcome = catch_unwind(AssertUnwindSafe(|| match target.as_str() {
            "host" => host(&bytes),
            "hello" => hello(&bytes, &mut random),
            _ => runtime.block_on(proxy.converse(&bytes)),
        }));
        match outcome {
            Ok(well_formed) => accepted += u64::from(well_formed),
            Err(_) => panic!("case {case} of seed {seed} failed: {bytes:?}"),
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!("{target}: {cases} cases, seed {seed}, {accepted} well-formed, none failed; {peak}");
}

/// A text that we parse as a host is the same host by the standard, and has one normal form.
fn host(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Ok(host) = Host::parse(&text) else { return false };
    assert_eq!(Host::parse(&host.to_string()).as_ref(), Ok(&host), "{text:?} has one form");
    match (&host, url::Host::parse(&text)) {
        (Host::Name(name), Ok(url::Host::Domain(domain))) => {
            assert_eq!(name.as_str(), domain.strip_suffix('.').unwrap_or(&domain), "{text:?}");
        }
        (Host::Address(address), Ok(url::Host::Ipv4(theirs))) => assert_eq!(*address, IpAddr::V4(theirs)),
        (Host::Address(address), Ok(url::Host::Ipv6(theirs))) => {
            assert_eq!(*address, IpAddr::V6(theirs).to_canonical());
        }
        // Bare, as in SOCKS; a URL has brackets.
        (Host::Address(_), Err(_)) if text.contains(':') => {}
        (ours, theirs) => panic!("{text:?}: {ours:?} here, {theirs:?} by the standard"),
    }
    true
}

/// Chunks give the same result as one piece; and where rustls accepts the bytes, it finds the same name.
fn hello(bytes: &[u8], random: &mut Random) -> bool {
    const LIMIT: usize = 1 << 14;
    let whole = HelloReader::new(LIMIT).read(bytes);
    let (mut reader, mut left) = (HelloReader::new(LIMIT), bytes);
    let pieces = loop {
        let (piece, rest) = left.split_at((1 + random.below(100)).min(left.len()));
        let read = reader.read(piece);
        left = rest;
        if read != Ok(ClientHello::Incomplete) || left.is_empty() {
            break read;
        }
    };
    assert_eq!(pieces, whole, "in pieces it is the same");
    let Ok(ClientHello::Sni(name)) = &whole else { return whole == Ok(ClientHello::NoSni) };
    let mut acceptor = rustls::server::Acceptor::default();
    acceptor.read_tls(&mut &bytes[..]).unwrap();
    if let Ok(Some(accepted)) = acceptor.accept()
        && let Some(theirs) = accepted.client_hello().server_name()
    {
        assert_eq!(
            theirs.to_ascii_lowercase().as_bytes(),
            name.to_ascii_lowercase(),
            "rustls sees the same name"
        );
    }
    true
}

/// A proxy that must not connect to any host.
struct Proxy {
    egress: Egress,
    refusals: Arc<Refusals>,
}

#[derive(Debug, Default)]
struct Refusals(AtomicU64);

impl EgressObserver for Refusals {
    fn refused(&self, refusal: &Refusal) {
        let shown = refusal.to_string();
        assert!(shown.len() < 4_000 && shown.lines().count() == 2, "{shown:?}");
        assert!(!shown.contains(|character: char| character.is_control() && character != '\n'), "{shown:?}");
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn connected(&self, target: &conjure_egress::Target, _: std::net::SocketAddr) {
        panic!("connected to {target}");
    }
}

impl Proxy {
    fn new() -> Self {
        let refusals = Arc::new(Refusals::default());
        let egress =
            Egress::new(EgressPolicy::None).with_observer(Arc::clone(&refusals) as Arc<dyn EgressObserver>);
        Self { egress, refusals }
    }

    /// Whether the input was a valid request, so that it was refused by policy.
    async fn converse(&self, bytes: &[u8]) -> bool {
        let before = self.refusals.0.load(Ordering::Relaxed);
        let (mut client, server) = tokio::io::duplex(1 << 12);
        let talk = async {
            // It may close before it has read everything.
            let _ = client.write_all(bytes).await;
            let _ = client.shutdown().await;
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).await.unwrap();
            heard
        };
        let ((), heard) = tokio::join!(self.egress.serve(server), talk);
        let refused = self.refusals.0.load(Ordering::Relaxed) - before;
        assert!(refused == u64::from(!bytes.is_empty()), "{refused} refusals");
        heard.starts_with(b"HTTP/1.1 403 ") || heard == [5, 0, 5, 2, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

fn bytes(samples: &[&str]) -> Vec<Vec<u8>> {
    samples.iter().map(|sample| sample.as_bytes().to_vec()).collect()
}

fn host_samples() -> Vec<Vec<u8>> {
    bytes(&[
        "example.com",
        "WWW.Example.COM.",
        "xn--bcher-kva.example",
        "bücher.example",
        "127.0.0.1",
        "0x7f.0.0.1",
        "017700000001",
        "2130706433",
        "[::ffff:127.0.0.1]",
        "[2001:db8::1]",
        "fe80::1%eth0",
        "１２７。0.0.1",
        "a.b.c.d.e.f.0x",
        "ß.example",
        "faß.de",
        "xn--a-ecp.ru",
        "℀.com",
        "r3---sn-4g5e.example.",
        "a\u{200d}b.example",
        "1.2.3.08",
        "0x.0x.0",
    ])
}

fn hello_samples() -> Vec<Vec<u8>> {
    let sizes = [None, Some(64), Some(400)];
    let names = ["example.com", "a.very-long-name.of-some.service.example.org", "127.0.0.1"];
    names
        .into_iter()
        .flat_map(|name| sizes.map(|size| (name, size)))
        .map(|(name, size)| {
            let provider = rustls::crypto::ring::default_provider();
            let mut config = rustls::ClientConfig::builder_with_provider(provider.into())
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth();
            config.max_fragment_size = size;
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            let name = name.to_owned().try_into().unwrap();
            let mut client = rustls::ClientConnection::new(config.into(), name).unwrap();
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            bytes
        })
        .collect()
}

fn socks_samples() -> Vec<Vec<u8>> {
    let greeting = [5, 2, 0, 2];
    [
        [&greeting[..], &[5, 1, 0, 3, 11], b"example.com", &[1, 187]].concat(),
        [&greeting[..], &[5, 1, 0, 1, 127, 0, 0, 1, 0, 80]].concat(),
        [&greeting[..], &[5, 1, 0, 4], &[0; 15], &[1, 0, 80]].concat(),
        [&greeting[..], &[5, 2, 0, 1, 0, 0, 0, 0, 0, 0]].concat(),
        vec![5, 1, 0, 5, 1, 0, 3, 3, b':', b':', b'1', 0, 80],
        vec![4, 1, 0, 80, 1, 1, 1, 1, 0],
    ]
    .to_vec()
}

fn http_samples() -> Vec<Vec<u8>> {
    bytes(&[
        "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nUser-Agent: x\r\n\r\n",
        "CONNECT [::1]:443 HTTP/1.0\r\n\r\n\u{16}\u{3}\u{1}",
        "GET http://example.com/a?b HTTP/1.1\r\nHost: example.com\r\nConnection: close, x\r\nX: y\r\n\r\n",
        "POST http://a:80/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "PUT HTTP://127.1/ HTTP/1.1\r\nhost: 127.0.0.1:80\r\nContent-Length: 3\r\n\r\nabc",
        "OPTIONS http://xn--bcher-kva.example HTTP/1.1\r\nHost: b\u{fc}cher.example\r\n\r\n",
    ])
}

/// A sample with a few changes: bytes set, flipped, removed, doubled, or spliced from another sample.
fn mutate(samples: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const INTERESTING: [u8; 24] = *b"\0\x01\x03\x05\x16\x7f\x80\xff\n\r\t :;.-%[]/@x0#";
    let mut bytes = samples[random.below(samples.len())].clone();
    for _ in 0..random.below(6) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        let length = random.below(16).min(bytes.len() - at);
        match random.below(7) {
            0 => bytes[at] = u8::try_from(random.below(256)).unwrap(),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = INTERESTING[random.below(INTERESTING.len())],
            3 => drop(bytes.drain(at..at + length)),
            4 => bytes.extend_from_within(at..at + length),
            5 => {
                let part = bytes[at..at + length].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let other = &samples[random.below(samples.len())];
                let from = random.below(other.len());
                let part = other[from..(from + length).min(other.len())].to_vec();
                bytes.splice(at..at + length, part);
            }
        }
    }
    bytes
}

/// SplitMix64: enough for choosing changes.
struct Random(u64);

impl Random {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(bound).unwrap()).unwrap()
    }
}

//! That memory stays flat, the host's and the guest's, however much goes through the proxy of a jail. A binary of its
//! own: it measures its own process, so what it tests is in one function.
//!
//! `CONJURE_TUNNEL_BYTES` makes more go through than the quarter of a gigabyte in each direction that it is by itself; with
//! `--nocapture` it prints how fast that was.

#[cfg(test)]
#[expect(dead_code, reason = "of the servers and names there, some are used here")]
#[path = "../../egress/tests/it/support.rs"]
mod outside;
#[expect(dead_code, reason = "only a part of the module is used here")]
mod support;

use std::ffi::OsString;
use std::fs;
use std::sync::Arc;

use conjure_base::SystemClock;
use conjure_egress::{EgressPolicy, WebPorts};
use conjure_sandbox::{Command, CommandEnd, ExecutionContext, Executor, Jail, NetworkPolicy, Sandbox};
use support::{options, peak_memory, processes, soon, text};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How much the host's peak may grow: a few windows and buffers, nothing near to what passes through.
const ROOM: u64 = 8 * 1024 * 1024;

/// The most that a guest has resident.
const GUEST: u64 = 8 * 1024 * 1024;

/// The peak resident memory of the guests below this process, in bytes: the two processes of a jail.
fn guests() -> Option<u64> {
    let peak = |pid: i32| -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    };
    let all = processes();
    let below = |pid: i32| all.iter().find(|process| process.parent == pid).map(|process| process.pid);
    let outer = below(i32::try_from(std::process::id()).ok()?)?;
    Some(peak(outer)?.max(peak(below(outer)?)?))
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test's own setting, declared at the top of this file")]
async fn proxy_memory_is_constant_for_any_amount_of_data() {
    let size: usize = std::env::var("CONJURE_TUNNEL_BYTES").map_or(256 << 20, |text| text.parse().unwrap());
    let server = outside::Server::start(move |mut stream| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let mut buffer = vec![b'x'; 256 * 1024];
        let is_upload = head.starts_with(b"PUT");
        // In chunks, whose end cannot be taken for content: that is zeros.
        let mut end = [0; 5];
        while is_upload && end != *b"0\r\n\r\n" {
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "the upload ends early");
            let last = [&end[..], &buffer[..count]].concat();
            end.copy_from_slice(&last[count..]);
        }
        let length = if is_upload { 0 } else { size };
        let start = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(start.as_bytes()).await.unwrap();
        let mut remaining = length;
        while remaining > 0 {
            let piece = remaining.min(buffer.len());
            stream.write_all(&buffer[..piece]).await.unwrap();
            remaining -= piece;
        }
    })
    .await;
    test_support::need_user_namespaces();
    let ports = WebPorts { http: vec![server.port], https: Vec::new() };
    let path = OsString::from("/usr/local/bin:/usr/bin:/bin");
    let jail = Jail::new([("PATH".into(), path)])
        .with_egress(outside::egress(EgressPolicy::None).with_web_ports(ports));
    let workspace = tempfile::tempdir().unwrap();
    let network = NetworkPolicy::Limited(vec![server.at("good.example")]);
    let context = ExecutionContext { network, ..ExecutionContext::new(workspace.path()) };
    let sandbox = Sandbox::open(&jail, &context, Arc::new(SystemClock), soon(30)).await.unwrap();
    let found = sandbox.run(Command::bash("command -v curl"), options()).await.unwrap();
    if found.end != CommandEnd::Exited(0) {
        test_support::skip("`curl` is not in the jail", "apt-get install curl");
        return;
    }
    let before = peak_memory(std::process::id());
    let url = format!("http://{}/", server.at("good.example"));
    let down = format!("curl --silent --show-error --fail {url} | wc -c");
    let up = format!("head -c {size} /dev/zero | curl -sS --fail -H Expect: -T - {url}; echo $?");
    for (name, script, expected) in [("down", down, size.to_string()), ("up", up, "0".to_owned())] {
        let outcome = sandbox.run(Command::bash(&script), options()).await.unwrap();
        let elapsed = outcome.duration;
        assert_eq!((outcome.end, text(&outcome).trim()), (CommandEnd::Exited(0), expected.as_str()));
        println!(
            "{name}: {size} bytes in {elapsed:?}: {:.0} MB/s",
            size as f64 / elapsed.as_secs_f64() / 1e6
        );
    }
    let (growth, guests) =
        (peak_memory(std::process::id()) - before, guests().expect("a jail's two processes"));
    println!("the host's peak grew by {} KiB, a guest had {} KiB", growth / 1024, guests / 1024);
    assert!(growth < ROOM, "the host's peak grew by {growth} bytes");
    assert!(guests < GUEST, "a guest had {guests} bytes");
}

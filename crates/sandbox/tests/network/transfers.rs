//! Much, many, and broken off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_egress::WebPorts;
use conjure_sandbox::{Command, CommandEnd, Executor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

use crate::outside::Server;
use crate::support::{bearing, guest_of_process, options, sigkill, text, until};
use crate::web::{Web, allowing, sandbox};

/// Reads the head of a request.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { break };
        head.push(byte);
    }
    String::from_utf8(head).unwrap()
}

/// A jail that may reach this server.
async fn reaching(server: &Server) -> Web {
    let ports = WebPorts { http: vec![server.port], https: Vec::new() };
    sandbox(allowing(&["good.example"], &[server.port]), ports, &[]).await.unwrap()
}

/// Counts those that are connected.
#[derive(Debug, Clone)]
struct Connected(Arc<watch::Sender<usize>>);

impl Connected {
    fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    async fn reaches(&self, count: usize) {
        self.0.subscribe().wait_for(|connected| *connected == count).await.unwrap();
    }

    fn guard(&self) -> ConnectionGuard {
        self.0.send_modify(|connected| *connected += 1);
        ConnectionGuard(self.clone())
    }
}

#[derive(Debug)]
struct ConnectionGuard(Connected);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|connected| *connected -= 1);
    }
}

/// A server that sends without end, and takes without end.
async fn endless() -> (Server, Connected) {
    let connected = Connected::new();
    let count = connected.clone();
    let server = Server::start(move |mut stream| {
        let count = count.clone();
        async move {
            let _one = count.guard();
            read_head(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            while stream.write_all(&[b'x'; 65_536]).await.is_ok() {}
        }
    })
    .await;
    (server, connected)
}

fn download(server: &Server) -> Command {
    Command::bash(&format!("curl --silent --output /dev/null http://good.example:{}/", server.port))
}

/// The tasks of the runtime, which has no others than this test's.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn data_arrives_complete_in_both_directions() {
    const SIZE: usize = 20_000_000;
    let server = Server::start(|mut stream| async move {
        let request = read_head(&mut stream).await;
        let sum = |bytes: &[u8], offset: usize| {
            bytes
                .iter()
                .zip(offset..)
                .fold(0_u64, |sum, (byte, offset)| sum.wrapping_add(u64::from(*byte) * offset as u64))
        };
        let answer = if request.starts_with("PUT") {
            let (mut total, mut offset, mut buffer) = (0_u64, 0, vec![0; 65_536]);
            while offset < SIZE {
                let count = stream.read(&mut buffer).await.unwrap();
                assert!(count > 0, "the upload ends early");
                total = total.wrapping_add(sum(&buffer[..count], offset));
                offset += count;
            }
            total.to_string().into_bytes()
        } else {
            (0..SIZE).map(|place| (place * 31 + place / 251) as u8).collect()
        };
        let start = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
        stream.write_all(start.as_bytes()).await.unwrap();
        stream.write_all(&answer).await.unwrap();
    })
    .await;
    let fixture = reaching(&server).await;
    if !fixture.has("curl").await {
        return;
    }
    let curl = "curl --silent --show-error --fail";
    let url = format!("http://good.example:{}/", server.port);
    // The downloaded data is uploaded again, and both sides have seen the same bytes.
    let script = format!("{curl} --output big {url} && {curl} -H Expect: --upload-file big {url}");
    let uploaded: u64 = fixture.bash(&script).await.parse().unwrap();
    let expected = (0..SIZE).fold(0_u64, |sum, place| {
        sum.wrapping_add(u64::from((place * 31 + place / 251) as u8) * place as u64)
    });
    assert_eq!(uploaded, expected);
}

#[tokio::test]
async fn two_hundred_connections_are_open_at_once() {
    const MANY: usize = 200;
    let (came, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let server = Server::start(move |mut stream| {
        let (came, all) = (Arc::clone(&came), Arc::clone(&all));
        async move {
            read_head(&mut stream).await;
            // The server responds after all clients are connected.
            if came.fetch_add(1, Ordering::Relaxed) + 1 == MANY {
                all.add_permits(MANY);
            }
            all.acquire().await.unwrap().forget();
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n.").await;
        }
    })
    .await;
    let fixture = reaching(&server).await;
    if !fixture.has("curl").await {
        return;
    }
    let script = format!(
        "curl --silent --show-error --fail --parallel --parallel-immediate --parallel-max {MANY} \
         'http://good.example:{}/[1-{MANY}]' 2> errors || cat errors",
        server.port
    );
    assert_eq!(fixture.bash(&script).await, ".".repeat(MANY));
}

#[tokio::test]
async fn a_command_that_is_cancelled_in_mid_transfer_ends_its_connection() {
    let (server, connected) = endless().await;
    let fixture = reaching(&server).await;
    if !fixture.has("curl").await {
        return;
    }
    let options = options();
    let cancel = options.cancel.clone();
    let transfer = fixture.sandbox.run(download(&server), options);
    let (outcome, ()) = tokio::join!(transfer, async {
        connected.reaches(1).await;
        cancel.cancel();
    });
    assert_eq!(outcome.unwrap().end, CommandEnd::Cancelled);
    connected.reaches(0).await;
    // The sandbox continues, and so does its egress.
    let options = self::options();
    let cancel = options.cancel.clone();
    let reopened = fixture.sandbox.run(download(&server), options);
    let (reopened, ()) = tokio::join!(reopened, async {
        connected.reaches(1).await;
        cancel.cancel();
    });
    assert_eq!(reopened.unwrap().end, CommandEnd::Cancelled);
}

#[tokio::test]
async fn a_client_stopped_in_mid_transfer_delays_no_other() {
    let (server, connected) = endless().await;
    let fixture = reaching(&server).await;
    if !fixture.has("curl").await {
        return;
    }
    let options = options();
    let cancel = options.cancel.clone();
    // It asks and never reads.
    let stopped = Command::bash(&format!(
        "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://good.example:{0}/ HTTP/1.1\\r\\nHost: \
         good.example:{0}\\r\\n\\r\\n' >&3; sleep 1000",
        server.port
    ));
    let other = async {
        connected.reaches(1).await;
        let script =
            format!("(curl --silent http://good.example:{}/ || true) | head -c 5000000 | wc -c", server.port);
        assert_eq!(fixture.bash(&script).await.trim(), "5000000");
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(fixture.sandbox.run(stopped, options), other);
    assert_eq!(outcome.unwrap().end, CommandEnd::Cancelled);
    connected.reaches(0).await;
}

#[tokio::test]
async fn a_sandbox_that_ends_in_mid_transfer_leaves_no_task() {
    let (server, connected) = endless().await;
    let before = tasks();
    for is_dropped in [true, false] {
        let fixture = reaching(&server).await;
        if !fixture.has("curl").await {
            return;
        }
        let transfer = fixture.sandbox.run(download(&server), options());
        let started = connected.reaches(1);
        tokio::select! {
            outcome = transfer => panic!("it ended: {}", text(&outcome.unwrap())),
            () = started => {}
        }
        if is_dropped {
            drop(fixture);
        } else {
            fixture.sandbox.cleanup().await;
        }
        connected.reaches(0).await;
        until("no task is left", || tasks() == before).await;
    }
}

#[tokio::test]
async fn a_guest_that_is_killed_in_mid_transfer_leaves_no_task() {
    let (server, connected) = endless().await;
    let before = tasks();
    let fixture = reaching(&server).await;
    if !fixture.has("curl").await {
        return;
    }
    let transfer = fixture.sandbox.run(download(&server), options());
    let killed = async {
        connected.reaches(1).await;
        let client = bearing(&format!("http://good.example:{}/", server.port));
        sigkill(guest_of_process(client[0].pid, std::process::id()));
    };
    let (outcome, ()) = tokio::join!(transfer, killed);
    assert_eq!(outcome.unwrap_err().kind(), conjure_sandbox::SandboxErrorKind::Lost);
    connected.reaches(0).await;
    until("no task is left", || tasks() == before).await;
}

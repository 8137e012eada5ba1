//! Much, many, and broken off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_egress::WebPorts;
use conjure_sandbox::{Command, CommandEnd, Executor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

use crate::outside::Server;
use crate::support::{bearing, guest_above, kill_nine, options, text, until};
use crate::web::{Web, allowing, sandbox};

/// Reads the head of a request.
async fn head(stream: &mut TcpStream) -> String {
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

    fn one(&self) -> One {
        self.0.send_modify(|connected| *connected += 1);
        One(self.clone())
    }
}

#[derive(Debug)]
struct One(Connected);

impl Drop for One {
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
            let _one = count.one();
            head(&mut stream).await;
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
async fn what_goes_through_arrives_whole_in_both_directions() {
    const SIZE: usize = 20_000_000;
    let server = Server::start(|mut stream| async move {
        let request = head(&mut stream).await;
        let sum = |bytes: &[u8], at: usize| {
            bytes
                .iter()
                .zip(at..)
                .fold(0_u64, |sum, (byte, at)| sum.wrapping_add(u64::from(*byte) * at as u64))
        };
        let answer = if request.starts_with("PUT") {
            let (mut total, mut at, mut buffer) = (0_u64, 0, vec![0; 65_536]);
            while at < SIZE {
                let count = stream.read(&mut buffer).await.unwrap();
                assert!(count > 0, "the upload ends early");
                total = total.wrapping_add(sum(&buffer[..count], at));
                at += count;
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
    let world = reaching(&server).await;
    if !world.has("curl").await {
        return;
    }
    let curl = "curl --silent --show-error --fail";
    let url = format!("http://good.example:{}/", server.port);
    // What was loaded down goes up again, and both sides have seen the same.
    let script = format!("{curl} --output big {url} && {curl} -H Expect: --upload-file big {url}");
    let told: u64 = world.bash(&script).await.parse().unwrap();
    let expected = (0..SIZE).fold(0_u64, |sum, place| {
        sum.wrapping_add(u64::from((place * 31 + place / 251) as u8) * place as u64)
    });
    assert_eq!(told, expected);
}

#[tokio::test]
async fn two_hundred_connections_are_open_at_once() {
    const MANY: usize = 200;
    let (came, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let server = Server::start(move |mut stream| {
        let (came, all) = (Arc::clone(&came), Arc::clone(&all));
        async move {
            head(&mut stream).await;
            // Nobody is answered before all are there.
            if came.fetch_add(1, Ordering::Relaxed) + 1 == MANY {
                all.add_permits(MANY);
            }
            all.acquire().await.unwrap().forget();
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n.").await;
        }
    })
    .await;
    let world = reaching(&server).await;
    if !world.has("curl").await {
        return;
    }
    let script = format!(
        "curl --silent --show-error --fail --parallel --parallel-immediate --parallel-max {MANY} \
         'http://good.example:{}/[1-{MANY}]' 2> errors || cat errors",
        server.port
    );
    assert_eq!(world.bash(&script).await, ".".repeat(MANY));
}

#[tokio::test]
async fn a_command_that_is_cancelled_in_mid_transfer_ends_its_connection() {
    let (server, connected) = endless().await;
    let world = reaching(&server).await;
    if !world.has("curl").await {
        return;
    }
    let options = options();
    let cancel = options.cancel.clone();
    let transfer = world.sandbox.run(download(&server), options);
    let (outcome, ()) = tokio::join!(transfer, async {
        connected.reaches(1).await;
        cancel.cancel();
    });
    assert_eq!(outcome.unwrap().end, CommandEnd::Cancelled);
    connected.reaches(0).await;
    // The sandbox goes on, and so does its way out.
    let options = self::options();
    let cancel = options.cancel.clone();
    let again = world.sandbox.run(download(&server), options);
    let (again, ()) = tokio::join!(again, async {
        connected.reaches(1).await;
        cancel.cancel();
    });
    assert_eq!(again.unwrap().end, CommandEnd::Cancelled);
}

#[tokio::test]
async fn a_client_that_stops_in_mid_transfer_delays_no_other() {
    let (server, connected) = endless().await;
    let world = reaching(&server).await;
    if !world.has("curl").await {
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
        assert_eq!(world.bash(&script).await.trim(), "5000000");
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(world.sandbox.run(stopped, options), other);
    assert_eq!(outcome.unwrap().end, CommandEnd::Cancelled);
    connected.reaches(0).await;
}

#[tokio::test]
async fn a_sandbox_that_ends_in_mid_transfer_leaves_no_task() {
    let (server, connected) = endless().await;
    let before = tasks();
    for is_dropped in [true, false] {
        let world = reaching(&server).await;
        if !world.has("curl").await {
            return;
        }
        let transfer = world.sandbox.run(download(&server), options());
        let started = connected.reaches(1);
        tokio::select! {
            outcome = transfer => panic!("it ended: {}", text(&outcome.unwrap())),
            () = started => {}
        }
        if is_dropped {
            drop(world);
        } else {
            world.sandbox.cleanup().await;
        }
        connected.reaches(0).await;
        until("no task is left", || tasks() == before).await;
    }
}

#[tokio::test]
async fn a_guest_that_is_killed_in_mid_transfer_leaves_no_task() {
    let (server, connected) = endless().await;
    let before = tasks();
    let world = reaching(&server).await;
    if !world.has("curl").await {
        return;
    }
    let transfer = world.sandbox.run(download(&server), options());
    let killed = async {
        connected.reaches(1).await;
        let client = bearing(&format!("http://good.example:{}/", server.port));
        kill_nine(guest_above(client[0].pid, std::process::id()));
    };
    let (outcome, ()) = tokio::join!(transfer, killed);
    assert_eq!(outcome.unwrap_err().kind(), conjure_sandbox::SandboxErrorKind::Lost);
    connected.reaches(0).await;
    until("no task is left", || tasks() == before).await;
}

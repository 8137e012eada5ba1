//! The server is killed at random points of a conversation, and started again at the same address: nothing that was acknowledged is lost,
//! nothing is seen by halves, events keep their ids, and every session ends without anybody asking.
//!
//! `CONJURE_KILLED_SEED` repeats the points of a run, whose seed is printed.

use std::process::Stdio;
use std::time::Duration;

use conjure::{Clock as _, SystemClock};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::server::{RunningServer, dir, python};

/// How often the server is killed.
const KILLS: u32 = 200;

/// A point is this many requests after the start, and so long after the last of them.
const MAX_REQUESTS: u64 = 6;
const MAX_DELAY_MICROS: u64 = 60_000;

/// How long the client may take for its next request, or to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// Numbers that follow from a seed (SplitMix64).
struct SplitMix64(u64);

impl SplitMix64 {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

fn seed() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the seed of a run that is repeated")]
    let seed_variable = std::env::var("CONJURE_KILLED_SEED").ok();
    seed_variable.map_or_else(|| SystemClock.timestamp().millis(), |text| text.parse().unwrap())
}

#[tokio::test]
async fn a_killed_server_loses_nothing_and_ends_every_session() {
    let Some(python) = python().await else { return };
    let seed = seed();
    println!("CONJURE_KILLED_SEED={seed}");
    let mut numbers = SplitMix64(seed);
    let data = tempfile::tempdir().unwrap();
    let mut server = RunningServer::start(data.path(), "killed").await;
    let address = server.url().trim_start_matches("http://").to_owned();
    let mut command = python.command();
    let mut client = command
        .arg(dir().join("programs/killed.py"))
        .arg(server.url())
        .env("PYTHONPATH", dir().join("programs"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let (count, mut requests) = watch::channel(0_u64);
    let mut reading = JoinSet::new();
    reading.spawn(async move {
        let mut last = String::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            count.send_modify(|count| *count += 1);
            last = line;
        }
        last
    });
    for kill in 0..KILLS {
        let wanted = *requests.borrow() + numbers.below(MAX_REQUESTS);
        let result = timeout(PATIENCE, requests.wait_for(|count| *count >= wanted)).await;
        assert!(result.is_ok_and(|result| result.is_ok()), "the client continues (kill {kill}, seed {seed})");
        sleep(Duration::from_micros(numbers.below(MAX_DELAY_MICROS))).await;
        server.kill().await;
        server = RunningServer::start_at(&address, data.path(), "killed").await;
    }
    drop(client.stdin.take());
    let ended = timeout(PATIENCE, client.wait()).await.expect("the client ends").unwrap();
    assert!(ended.success(), "the client found the acknowledged data (seed {seed})");
    println!("{KILLS} kills: {}", reading.join_next().await.unwrap().unwrap());
    server.stop().await;
}

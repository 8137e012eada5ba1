//! A thousand sessions with a stream each, and a client among them that reads nothing.

use std::time::{Duration, Instant};

use conjure::{Clock as _, SystemClock};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;

use crate::harness::Result;
use crate::http_client::{Connection, EventStream};
use crate::requests::each;
use crate::server_process::ServerProcess;
use crate::setup::{Objects, Setup, message};
use crate::times::{Times, header};

const STREAMS: usize = 1_000;
/// How many clients send at a time.
const SENDERS: usize = 4;
/// How many turns each session has while one client reads nothing, and without that.
const ROUNDS: usize = 3;
/// What the client that reads nothing is sent: more than both kernels keep for it.
const LARGE_TEXT: usize = 1 << 20;
const LARGE_MESSAGES: usize = 12;
/// After this the server must have cut it off.
const CUT_AFTER: Duration = Duration::from_secs(75);

pub(crate) async fn measure() -> Result<()> {
    let setup = Setup::new()?;
    let server = setup.server().await?;
    let objects = Objects::create(server.address).await?;
    let mut connection = Connection::open(server.address).await?;
    let idle = server.memory()?;
    let mut sessions = Vec::new();
    for _ in 0..STREAMS {
        sessions.push(objects.session(&mut connection).await?);
    }
    let with_sessions = server.memory()?;
    let mut streams = Vec::new();
    for session in &sessions {
        let path = format!("/v1/sessions/{session}/events/stream");
        streams.push(Connection::open(server.address).await?.stream(&path).await?);
    }
    let with_streams = server.memory()?;
    let kb = |bytes: u64| bytes as f64 / 1024.0;
    println!("server: {:.0} KB idle", kb(idle));
    let each_session = kb(with_sessions.saturating_sub(idle)) / STREAMS as f64;
    let each_stream = kb(with_streams.saturating_sub(with_sessions)) / STREAMS as f64;
    println!("RESULT goal=serve case=memory-of-a-live-session ours={each_session:.1} unit=KB");
    println!("RESULT goal=serve case=memory-of-a-stream ours={each_stream:.1} unit=KB");
    header();
    let quiet = rounds(&server, &sessions, &mut streams).await?;
    quiet.print("event to client, 1,000 streams");
    println!("RESULT goal=serve case=event-to-client-p99 ours={:.0} unit=ms", quiet.percentile(99));
    let total = kb(server.memory()?) / 1024.0;
    println!("RESULT goal=serve case=memory-with-1000-streams ours={total:.1} unit=MB");

    // One more client, which reads nothing.
    let other = objects.session(&mut connection).await?;
    let slow = Connection::with_receive_buffer(server.address, 4_096).await?;
    let mut slow = slow.stalled_stream(&format!("/v1/sessions/{other}/events/stream")).await?;
    let before = server.memory()?;
    let text = "x".repeat(LARGE_TEXT);
    for _ in 0..LARGE_MESSAGES {
        connection.answer(&message(&other, &text)).await?;
    }
    let stalled = Instant::now();
    let beside = rounds(&server, &sessions, &mut streams).await?;
    beside.print("the same beside a stalled client");
    let (ours, alone) = (beside.percentile(99), quiet.percentile(99));
    println!(
        "RESULT goal=serve case=event-to-client-p99-beside-a-stalled-client ours={ours:.0} other={alone:.0} unit=ms ratio={:.2}",
        ours / alone
    );
    let grown = kb(server.memory()?.saturating_sub(before)) / 1024.0;
    println!("RESULT goal=serve case=memory-beside-a-stalled-client ours={grown:.1} unit=MB");
    tokio::time::sleep(CUT_AFTER.saturating_sub(stalled.elapsed())).await;
    // It finds what the kernels kept, and the end.
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(5), slow.read_to_end(&mut rest)).await;
    let sent = LARGE_MESSAGES * LARGE_TEXT;
    if ended.is_err() || rest.ends_with(b"0\r\n\r\n") || rest.len() > sent {
        return Err("the client that reads nothing was not cut off".into());
    }
    println!(
        "a client that read nothing of {sent} bytes was cut off within {CUT_AFTER:?}, at {} bytes",
        rest.len()
    );
    server.stop().await
}

/// Sends a message to each session, some at a time. Returns the times from the events to the clients.
async fn rounds(
    server: &ServerProcess,
    sessions: &[String],
    streams: &mut Vec<EventStream>,
) -> Result<Times> {
    let mut reading = JoinSet::new();
    for mut stream in streams.drain(..) {
        reading.spawn(async move {
            let mut times = Vec::new();
            let mut turns = 0;
            while turns < ROUNDS {
                let event = stream.next().await?;
                times.extend(age(&event));
                turns += usize::from(event["type"] == "session.status_idle");
            }
            Result::Ok((stream, times))
        });
    }
    let (count, ids) = (sessions.len() * ROUNDS, sessions.to_vec());
    let send = move |number: usize| message(&ids[number % ids.len()], "What is two and two?");
    each(SENDERS, count, server.address, send).await?;
    let mut times = Times::default();
    while let Some(read) = reading.join_next().await {
        let (stream, more) = read??;
        streams.push(stream);
        more.into_iter().for_each(|time| times.add(time));
    }
    Ok(times)
}

/// How long ago the event was processed. Its time is `…THH:MM:SS.mmm…`, by the same clock.
fn age(event: &Value) -> Option<Duration> {
    const DAY: u64 = 24 * 3_600 * 1_000;
    let (_, time) = event["processed_at"].as_str()?.split_once('T')?;
    let number = |range: std::ops::Range<usize>| time.get(range)?.parse::<u64>().ok();
    let seconds = (number(0..2)? * 60 + number(3..5)?) * 60 + number(6..8)?;
    let at = seconds * 1_000 + number(9..12)?;
    let now = SystemClock.timestamp().millis() % DAY;
    Some(Duration::from_millis((now + DAY - at) % DAY))
}

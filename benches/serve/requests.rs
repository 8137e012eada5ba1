//! Requests a second, what they take, and CPU for each event, beside the library.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::harness::Result;
use crate::http_client::{Connection, Request};
use crate::library;
use crate::setup::{Objects, Setup, message};
use crate::times::{Times, header};

/// How many clients there are, each with a connection.
pub(crate) const CLIENTS: usize = 16;
pub(crate) const SESSIONS: usize = 320;
pub(crate) const SESSION_TURNS: usize = 8;
const CREATIONS: usize = 1_600;
const LISTS: usize = 4_000;

/// What whole sessions took.
#[derive(Debug, Default)]
pub(crate) struct SessionTimes {
    pub(crate) created: Vec<Duration>,
    pub(crate) sent: Vec<Duration>,
    pub(crate) turns: Vec<Duration>,
    pub(crate) streams: Vec<Duration>,
    pub(crate) events: usize,
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl SessionTimes {
    pub(crate) fn merge(&mut self, other: Self) {
        for (all, more) in [
            (&mut self.created, other.created),
            (&mut self.sent, other.sent),
            (&mut self.turns, other.turns),
            (&mut self.streams, other.streams),
        ] {
            all.extend(more);
        }
        self.events += other.events;
    }

    fn cpu_micros_per_event(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.events as f64
    }

    fn turns_per_second(&self) -> f64 {
        (SESSIONS * SESSION_TURNS) as f64 / self.wall.as_secs_f64()
    }
}

pub(crate) async fn measure() -> Result<()> {
    let setup = Setup::new()?;
    let server = setup.server().await?;
    let objects = Objects::create(server.address).await?;
    header();
    let (served, ids) = {
        let (cpu, started) = (server.cpu_time()?, Instant::now());
        let (mut served, ids) = sessions(server.address, &objects).await?;
        (served.wall, served.cpu) = (started.elapsed(), server.cpu_time()?.saturating_sub(cpu));
        (served, ids)
    };
    for (name, case, taken) in [
        ("create a session", "create-in-sessions", &served.created),
        ("open a stream", "stream", &served.streams),
        ("send a message", "send", &served.sent),
    ] {
        let times = sorted(taken);
        times.print(name);
        println!("RESULT goal=serve case={case}-p99 ours={:.2} unit=ms", times.percentile(99));
    }
    let served_turns = sorted(&served.turns);
    served_turns.print("a turn, to the end in a stream");
    let (started, creation) = (Instant::now(), objects.creation());
    let times = each(CLIENTS, CREATIONS, server.address, move |_| creation.clone()).await?;
    report("create", CREATIONS, started.elapsed(), &times);
    let ids = Arc::new(ids);
    for (case, path) in
        [("list-events", "/events"), ("list-20-events", "/events?limit=20&order=desc"), ("retrieve", "")]
    {
        let (started, ids) = (Instant::now(), Arc::clone(&ids));
        let get = move |number| Request::get(format!("/v1/sessions/{}{path}", ids[number % ids.len()]));
        let times = each(CLIENTS, LISTS, server.address, get).await?;
        report(case, LISTS, started.elapsed(), &times);
    }
    let started = Instant::now();
    let times = each(CLIENTS, LISTS, server.address, |_| Request::get("/v1/models".to_owned())).await?;
    report("list-models", LISTS, started.elapsed(), &times);
    server.stop().await?;

    let library = library::sessions(&Setup::new()?).await?;
    let library_turns = sorted(&library.turns);
    library_turns.print("a turn through the library");
    let (ours, other) = (served_turns.percentile(99), library_turns.percentile(99));
    println!(
        "RESULT goal=serve case=turn-p99 ours={ours:.2} other={other:.2} unit=ms ratio={:.2}",
        ours / other
    );
    let (ours, other) = (served.turns_per_second(), library.turns_per_second());
    println!(
        "RESULT goal=serve case=turns ours={ours:.0} other={other:.0} unit=turns/s ratio={:.2}",
        ours / other
    );
    let (ours, other) = (served.cpu_micros_per_event(), library.cpu_micros_per_event());
    println!(
        "RESULT goal=serve case=cpu-per-event ours={ours:.0} other={other:.0} unit=us ratio={:.2}",
        ours / other
    );
    println!("{} events through the server, {} through the library", served.events, library.events);
    Ok(())
}

/// They in order.
pub(crate) fn sorted(taken: &[Duration]) -> Times {
    let mut times = Times::default();
    taken.iter().for_each(|time| times.add(*time));
    times
}

fn report(case: &str, count: usize, wall: Duration, times: &Times) {
    times.print(case);
    println!("RESULT goal=serve case={case} ours={:.0} unit=requests/s", count as f64 / wall.as_secs_f64());
    println!("RESULT goal=serve case={case}-p99 ours={:.2} unit=ms", times.percentile(99));
}

/// Makes so many requests by so many clients; the number of a request tells which it is.
pub(crate) async fn each(
    clients: usize,
    count: usize,
    server: SocketAddr,
    request: impl Fn(usize) -> Request + Send + Sync + 'static,
) -> Result<Times> {
    let shared = Arc::new((AtomicUsize::new(0), request));
    let mut working = JoinSet::new();
    for _ in 0..clients {
        let shared = Arc::clone(&shared);
        working.spawn(async move {
            let mut connection = Connection::open(server).await?;
            let mut times = Vec::new();
            loop {
                let number = shared.0.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Result::Ok(times);
                }
                let request = (shared.1)(number);
                let started = Instant::now();
                connection.answer(&request).await?;
                times.push(started.elapsed());
            }
        });
    }
    let mut all = Vec::new();
    while let Some(worked) = working.join_next().await {
        all.extend(worked??);
    }
    Ok(sorted(&all))
}

/// Whole sessions: created, followed by a stream, with some turns.
async fn sessions(server: SocketAddr, objects: &Objects) -> Result<(SessionTimes, Vec<String>)> {
    let objects = Arc::new(objects.clone());
    let mut working = JoinSet::new();
    for _ in 0..CLIENTS {
        let objects = Arc::clone(&objects);
        working.spawn(async move {
            let mut connection = Connection::open(server).await?;
            let (mut times, mut ids) = (SessionTimes::default(), Vec::new());
            for _ in 0..SESSIONS / CLIENTS {
                let started = Instant::now();
                let id = objects.session(&mut connection).await?;
                times.created.push(started.elapsed());
                let started = Instant::now();
                let path = format!("/v1/sessions/{id}/events/stream");
                let mut stream = Connection::open(server).await?.stream(&path).await?;
                times.streams.push(started.elapsed());
                for _ in 0..SESSION_TURNS {
                    let started = Instant::now();
                    connection.answer(&message(&id, "What is two and two?")).await?;
                    times.sent.push(started.elapsed());
                    times.events += stream.until_idle().await?;
                    times.turns.push(started.elapsed());
                }
                ids.push(id);
            }
            Result::Ok((times, ids))
        });
    }
    let (mut all, mut ids) = (SessionTimes::default(), Vec::new());
    while let Some(worked) = working.join_next().await {
        let (times, more) = worked??;
        all.merge(times);
        ids.extend(more);
    }
    Ok((all, ids))
}

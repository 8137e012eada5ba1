//! `cargo bench --bench journal`: what durable events cost in the journal in SQLite.
//!
//! - `events-per-second`: 64 sessions append at a time, each one event after the other, as each waits for its
//!   acknowledgement; the journal groups what waits into one commit.
//! - `ack-p50`: one session appends alone, one event after the other: from the call to its acknowledgement.
//!
//! Each is measured with the row of the session in the same transaction, as sessions append, and without it. The cases `rows` and `rows-ack`
//! compare the two.
//!
//! Events have 2 KiB, about what a tool call has. Every acknowledgement comes after a flush of the disk
//! (`synchronous = FULL`); so the figures are the disk's, too, and for comparison a plain file is written and flushed in
//! the same way beside it. `other` is the limit that we set ourselves; the least, the median and the most of several
//! rounds are printed, and the result is the median. Excluded: opening, creating sessions, large bodies.
//!
//! The journal lies below `target`, on the disk that the build lies on: a temporary directory may be in memory.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::error::Error;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use conjure_base::{SessionId, TenantId};
use conjure_journal::{
    AppendBatch, Epoch, Journal as _, NewEvent, RowStatus, SessionKey, SessionRow, SqliteJournal,
    SqliteOptions,
};
use futures_util::future::try_join_all;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const BODY: usize = 2 << 10;
const ROUNDS: usize = 7;
const SESSIONS: usize = 64;
/// Events of one session in a round of many.
const EVENTS: u64 = 200;
/// Events in a round of one.
const ALONE: u64 = 2_000;
/// What the design asks for.
const EVENTS_PER_SECOND: f64 = 20_000.0;
const ACK_MS: f64 = 0.5;
/// The size of a session's row, about what one with a title and a text has.
const ROW: usize = 400;
/// How often the status of a session changes: a turn has about so many appends.
const TURN: u64 = 8;

/// Whether appends store the row of their session.
#[derive(Clone, Copy)]
enum Rows {
    Stored,
    None,
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    runtime.block_on(measure(place.path()))
}

async fn measure(place: &Path) -> Result<()> {
    let journal = SqliteJournal::open(&place.join("journal"), SqliteOptions::default())?;
    let tenant = TenantId::new("bench")?;
    let mut keys = Vec::new();
    for _ in 0..SESSIONS {
        let key = SessionKey::new(tenant.clone(), SessionId::random()?);
        journal.create(&key).await?;
        keys.push(key);
    }
    let alone = SessionKey::new(tenant, SessionId::random()?);
    journal.create(&alone).await?;
    let (mut rates, mut acks, mut flushes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bare_rates, mut bare_acks) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let (events, one_alone) = (2 * round * EVENTS, 2 * round * ALONE);
        rates.push(many(&journal, &keys, events, Rows::Stored).await?);
        bare_rates.push(many(&journal, &keys, events + EVENTS, Rows::None).await?);
        acks.push(one(&journal, &alone, one_alone, Rows::Stored).await?);
        bare_acks.push(one(&journal, &alone, one_alone + ALONE, Rows::None).await?);
        flushes.push(plain(place)?);
    }
    journal.close().await;

    println!("{SESSIONS} sessions at a time, {BODY} bytes an event, {ROUNDS} rounds, events a second");
    let rate = summary("ours", rates);
    let ratio = rate / EVENTS_PER_SECOND;
    println!(
        "RESULT goal=journal case=events-per-second ours={rate:.0} other={EVENTS_PER_SECOND:.0} unit=events/s \
         ratio={ratio:.3}"
    );
    let bare = summary("without rows", bare_rates);
    println!(
        "RESULT goal=none case=rows ours={rate:.0} other={bare:.0} unit=events/s ratio={:.3}",
        rate / bare
    );
    println!("one session alone, p50 of {ALONE} events a round, ms");
    let ack = summary("ours", acks);
    let bare = summary("without rows", bare_acks);
    summary("a plain file", flushes);
    let ratio = ack / ACK_MS;
    println!("RESULT goal=journal case=ack-p50 ours={ack:.3} other={ACK_MS:.3} unit=ms ratio={ratio:.3}");
    println!("RESULT goal=none case=rows-ack ours={ack:.3} other={bare:.3} unit=ms ratio={:.3}", ack / bare);
    Ok(())
}

/// One event at this place.
fn append(seq: u64, rows: Rows) -> AppendBatch {
    let batch = AppendBatch::new(vec![NewEvent::new("tool_finished", 1, vec![b'x'; BODY])]);
    let status = if seq.is_multiple_of(TURN) { RowStatus::Idle } else { RowStatus::Running };
    match rows {
        Rows::Stored => batch.with_row(SessionRow { status, version: 1, body: vec![b'r'; ROW] }),
        Rows::None => batch,
    }
}

/// Events a second, of all sessions together.
async fn many(journal: &SqliteJournal, keys: &[SessionKey], from: u64, rows: Rows) -> Result<f64> {
    let start = Instant::now();
    let sessions = keys.iter().map(|key| async move {
        for seq in from..from + EVENTS {
            journal.append_batch(key, seq, Epoch::NONE, append(seq, rows)).await?;
        }
        Ok::<(), conjure_journal::JournalError>(())
    });
    try_join_all(sessions).await?;
    Ok((keys.len() as u64 * EVENTS) as f64 / start.elapsed().as_secs_f64())
}

/// The median time to an acknowledgement, in ms.
async fn one(journal: &SqliteJournal, key: &SessionKey, from: u64, rows: Rows) -> Result<f64> {
    let mut times = Vec::new();
    for seq in from..from + ALONE {
        let batch = append(seq, rows);
        let start = Instant::now();
        journal.append_batch(key, seq, Epoch::NONE, batch).await?;
        times.push(start.elapsed());
    }
    Ok(median_ms(times))
}

/// The same for a plain file of a size that does not change, as the journal's log is.
fn plain(place: &Path) -> Result<f64> {
    let mut file = File::create(place.join("plain"))?;
    let body = vec![b'x'; BODY];
    for _ in 0..ALONE {
        file.write_all(&body)?;
    }
    file.sync_all()?;
    file.rewind()?;
    let mut times = Vec::new();
    for _ in 0..ALONE {
        let start = Instant::now();
        file.write_all(&body)?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    Ok(median_ms(times))
}

fn median_ms(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1_000.0
}

/// Prints the least, the median and the most, and returns the median.
fn summary(name: &str, mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let median = values[values.len() / 2];
    println!("  {name:20} min {:.3}  median {median:.3}  max {:.3}", values[0], values[values.len() - 1]);
    median
}

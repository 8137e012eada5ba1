//! `cargo bench --bench soak -- [TURNS [SESSIONS]]`: 10,000 turns in one session, then 10,000 sessions of one turn each that are
//! deleted, and what the process has at each tenth of the way: resident memory, open files, and what lies on the disk. How it is
//! done stands in `tests/system/soak/course.rs`.
//!
//! The figures compare the end with the second tenth of the way, when everything was there once. A session holds its history, of
//! which each model call is sent all: so memory and the time of a turn grow with it, but no faster. What a history holds is
//! `other` there: the bytes that the journal has of a turn.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[path = "../tests/system/soak/course.rs"]
mod course;

use crate::course::{Result, Site, SoakReport};

fn main() -> Result<()> {
    let mut counts = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let (turns, sessions) = (counts.next().unwrap_or(10_000), counts.next().unwrap_or(10_000));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(turns, sessions))
}

async fn measure(turns: u32, sessions: u32) -> Result<()> {
    let site = Site::open().await?;
    let in_turns = site.turns(turns).await?;
    print("turns of one session", &in_turns);
    let in_sessions = site.sessions(sessions).await?;
    print("sessions", &in_sessions);
    let (known, live) = site.leftovers();
    println!("known sessions at the end: {known}, live: {live}");
    site.close().await?;
    for (case, course) in [("turns", &in_turns), ("sessions", &in_sessions)] {
        let (begun, ended) = course.start_and_end();
        let steps = f64::from(ended.steps - begun.steps);
        let each = |begun: u64, ended: u64| (to_float(ended) - to_float(begun)) * 1024.0 / steps;
        let (memory, journal) = (each(begun.memory, ended.memory), each(begun.journal, ended.journal));
        println!("RESULT goal=soak case={case}-memory ours={memory:.0} other={journal:.0} unit=bytes/step");
        println!(
            "RESULT goal=soak case={case}-files ours={} other={} unit=descriptors",
            ended.files, begun.files
        );
        println!("RESULT goal=soak case={case}-disk ours={} other={} unit=KiB", ended.disk, begun.disk);
        println!(
            "RESULT goal=soak case={case}-step ours={:.3} other={:.3} unit=ms ratio={:.2}",
            ended.step,
            begun.step,
            ended.step / begun.step
        );
    }
    Ok(())
}

fn print(what: &str, course: &SoakReport) {
    println!(
        "{:>22} {:>12} {:>7} {:>10} {:>12} {:>9}",
        what, "memory KiB", "files", "disk KiB", "journal KiB", "step ms"
    );
    for mark in &course.marks {
        let course::ResourceUsage { steps, memory, files, disk, journal, step } = mark;
        println!("{steps:22} {memory:12} {files:7} {disk:10} {journal:12} {step:9.3}");
    }
}

#[expect(clippy::cast_precision_loss, reason = "nobody has so much memory")]
const fn to_float(count: u64) -> f64 {
    count as f64
}

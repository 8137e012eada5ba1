//! `cargo bench --bench crash -- KILLS [SEED]`: what is lost, repeated and left when the host is killed at random moments.
//!
//! The host is a program that embeds the runtime over SQLite, with sessions of two tenants whose turns call tools in real
//! jails; it tells its parent each acknowledgement over a pipe. The parent kills it by SIGKILL, 1,000 times unless it is told
//! otherwise, starts it again on the same folder, and compares. Three counts, each of which must be 0: `lost`, what was
//! acknowledged and is not recorded, or is recorded otherwise; `repeated`, calls that ran or were answered twice; `leftover`,
//! processes, folders, control groups and mounts of a dead host once the next one has swept. A fourth, `invalid`, are requests
//! that no service would accept. The seed is printed: it repeats the moments and the conversations, as far as the machine's own
//! chance allows. Excluded: the crash of the machine, for which the journal syncs, and containers.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

#[path = "../actors/tests/crash/drill/mod.rs"]
mod drill;

use std::error::Error;

use drill::{Plan, be_the_host, drill};

const KILLS: u64 = 1_000;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(worked) = be_the_host(&arguments) {
        return worked;
    }
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse().ok());
    let kills = numbers.next().unwrap_or(KILLS);
    let seed = numbers.next().unwrap_or_else(|| u64::from(std::process::id()));
    println!("{kills} kills, seed {seed}");
    let findings = drill(&Plan { kills, seed, sessions: 2 })?;
    print!("{findings}");
    let cases = [
        ("lost", &findings.lost),
        ("repeated", &findings.repeated),
        ("leftover", &findings.leftover),
        ("invalid", &findings.invalid),
    ];
    for (case, found) in cases {
        println!("RESULT goal=crash case={case} ours={} unit=count", found.len());
    }
    if findings.is_clean() { Ok(()) } else { Err("the host did not survive its death whole".into()) }
}

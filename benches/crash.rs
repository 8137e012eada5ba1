//! `cargo bench --bench crash -- KILLS [SEED] [docker]`: what is lost, repeated and left when hosts are killed at random moments.
//!
//! A host is a program that embeds [`conjure::Runtime`] over a data directory, with sessions of two tenants whose turns call tools
//! in real jails, or, with `docker`, in containers; they have a skill, which is edited meanwhile, and secrets, and are deleted
//! at random. It tells its parent each acknowledgement over a pipe. The parent kills it by SIGKILL, 1,000 times (20 times with
//! containers) unless it is told otherwise, starts it again on the same directory, and compares; at times there is a second host on
//! the same directory, which is killed, too. Counted, and each must be 0: `lost`, what was acknowledged and is not recorded, or is
//! recorded otherwise; `repeated`, calls that ran or were answered twice; `leftover`, processes, control groups, mounts, containers
//! and directories of a dead host once the next one has started, and what the data directory has of no session; `invalid`, requests that
//! no service would accept; `exposed`, secrets that were told, or lie on the disk. The seed is printed: it repeats the moments and
//! the conversations, as far as the machine's own chance allows. Excluded: the crash of the machine, for which the journal syncs.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

#[path = "../tests/system/crash/drill/mod.rs"]
mod drill;
#[cfg(feature = "docker")]
#[expect(clippy::unwrap_used, reason = "the tests' own")]
#[path = "../tests/system/support/engine.rs"]
mod engine;
#[cfg(feature = "docker")]
#[expect(clippy::unwrap_used, reason = "the tests' own")]
#[path = "../tests/system/support/image.rs"]
mod image;

use std::error::Error;

use drill::{Plan, Sandboxes, be_the_host, drill};

const KILLS: u64 = 1_000;

/// A container takes longer.
const CONTAINER_KILLS: u64 = 20;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(worked) = be_the_host(&arguments) {
        return worked;
    }
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse().ok());
    let (kills, seed) = (numbers.next(), numbers.next());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    if arguments.iter().any(|argument| argument == "docker") {
        return in_containers(kills.unwrap_or(CONTAINER_KILLS), seed);
    }
    run(
        &Plan { kills: kills.unwrap_or(KILLS), seed, sessions: 2, sandboxes: Sandboxes::Jails, patience: 1 },
        "",
    )
}

#[cfg(feature = "docker")]
fn in_containers(kills: u64, seed: u64) -> Result<()> {
    let Some(image) = image::test_image() else {
        println!("SKIPPED docker: no engine answers at its usual socket");
        return Ok(());
    };
    let (image, engine) = (image.name().to_owned(), engine::docker().to_string());
    run(
        &Plan { kills, seed, sessions: 1, sandboxes: Sandboxes::Containers { image, engine }, patience: 1 },
        "docker-",
    )
}

#[cfg(not(feature = "docker"))]
fn in_containers(_: u64, _: u64) -> Result<()> {
    Err("this build has no containers".into())
}

fn run(plan: &Plan, prefix: &str) -> Result<()> {
    println!("{} kills, seed {}", plan.kills, plan.seed);
    let findings = drill(plan)?;
    print!("{findings}");
    for (case, found) in findings.kinds() {
        println!("RESULT goal=crash case={prefix}{case} ours={} unit=count", found.len());
    }
    if findings.is_clean() { Ok(()) } else { Err("the hosts did not survive their deaths whole".into()) }
}

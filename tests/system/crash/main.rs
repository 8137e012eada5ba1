//! Hosts are killed by SIGKILL at random moments while they work, and started again on the same data directory: nothing that was
//! acknowledged is lost, no effect is repeated, every next request is valid, no secret is told, nothing is left.
//!
//! The long form is `cargo bench --bench crash -- KILLS`. Without arguments it is the test; it starts itself again as the
//! host. `SEED KILLS` repeats what another run has found, as far as chance of the machine allows.

#![expect(clippy::print_stdout, reason = "this is a test without a harness")]

mod drill;

use std::error::Error;
use std::process::ExitCode;

use drill::{Plan, Sandboxes, be_the_host, drill};

const NAME: &str = "a_killed_host_loses_nothing_and_repeats_nothing";
const KILLS: u64 = 20;

/// How many drills it takes at most until one was hard.
const ROUNDS: usize = 8;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(worked) = be_the_host(&arguments) {
        return if worked.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse().ok());
    let first = numbers.next().unwrap_or_else(seed);
    let kills = numbers.next().unwrap_or(KILLS);
    match drill_until_hard(first, kills) {
        Ok(true) => {
            println!("test {NAME} ... ok");
            return ExitCode::SUCCESS;
        }
        Ok(false) => println!("test {NAME} ... FAILED"),
        Err(error) => println!("test {NAME} ... FAILED: {error}"),
    }
    ExitCode::FAILURE
}

/// Whether nothing was found. What the kills meet is chance: as long as no call was under way at one, there are more of them, of
/// hosts that live twice as long each time, since a machine that has much to do may let them do nothing in a short life.
fn drill_until_hard(first: u64, kills: u64) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let (mut unknown, mut abandoned, mut acknowledged) = (0, 0, 0);
    for (round, seed) in (first..).take(ROUNDS).enumerate() {
        let plan = Plan { kills, seed, sessions: 2, sandboxes: Sandboxes::Jails, patience: 1 << round };
        let findings = drill(&plan)?;
        println!("seed {seed}: {findings}");
        unknown += findings.tally.unknown;
        abandoned += findings.tally.abandoned;
        acknowledged += findings.tally.acknowledged;
        let is_hard = unknown > 0 && abandoned > 0 && acknowledged > 100;
        if is_hard || !findings.is_clean() {
            return Ok(findings.is_clean());
        }
    }
    Err("the test has lost its grip: no kill met a call that was under way".into())
}

/// Another each time.
fn seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    RandomState::new().build_hasher().finish() % 1_000_000
}

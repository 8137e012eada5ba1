//! The program inside every sandbox: it speaks the frame protocol on standard input and output, runs programs
//! and accesses files for the host, and ends, with everything it started, when the stream ends.
//!
//! It has one thread, always: that is what makes its forks sound (see `sys`). State: open operations. When it
//! crashes or is killed, the kernel tells its children, which end what is below them.

mod channels;
mod clock;
mod error;
mod exec;
mod feed;
mod file_job;
mod files;
mod guest;
mod job;
mod outbox;
mod sys;
mod tree;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match guest::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be left to read it.
            let _ = writeln!(std::io::stderr(), "conjure-guest: {error}");
            ExitCode::from(2)
        }
    }
}

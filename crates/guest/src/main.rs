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
mod fortress;
mod guest;
mod jail;
mod job;
mod meeting;
mod outbox;
mod pause;
mod quota;
mod sys;
mod tree;
mod tunnel;

use std::process::ExitCode;

use conjure_guest::protocol::CONNECT;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let code = match arguments.as_slice() {
        [] => guest::exit_code(guest::run()),
        [kind] if kind == "jail" => match jail::run() {
            Ok(code) => code,
            Err(error) => guest::exit_code(Err(error)),
        },
        [kind, path] if kind == CONNECT => match meeting::meet(path) {
            Ok(()) => guest::exit_code(guest::run()),
            Err(error) => guest::exit_code(Err(error)),
        },
        [kind] if kind == "own" => guest::exit_code(jail::take_back()),
        _ => guest::exit_code(Err(guest::Fatal::Arguments)),
    };
    ExitCode::from(code)
}

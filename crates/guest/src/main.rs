//! The program in every sandbox. It uses the frame protocol on standard input and output, and runs programs and
//! file operations for the host. When the stream ends, it exits with everything that it started.
//!
//! It always has exactly one thread, which makes its forks sound (see `sys`). State: the open operations. When it
//! crashes or is killed, the kernel signals its children, and they end everything below them.

mod clock;
mod confinement;
mod error;
mod event_loop;
mod exec;
mod file_job;
mod files;
mod frame_queue;
mod host_socket;
mod jail;
mod job;
mod pause;
mod pipe_writer;
mod process_tree;
mod quota;
mod sys;
mod tunnel;

use std::process::ExitCode;

use conjure_guest::protocol::CONNECT_ARG;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let code = match arguments.as_slice() {
        [] => error::exit_code(event_loop::run()),
        [kind] if kind == "jail" => match jail::run() {
            Ok(code) => code,
            Err(error) => error::exit_code(Err(error)),
        },
        [kind, path] if kind == CONNECT_ARG => match host_socket::connect_stdio(path) {
            Ok(()) => error::exit_code(event_loop::run()),
            Err(error) => error::exit_code(Err(error)),
        },
        [kind] if kind == "own" => error::exit_code(jail::chown_back()),
        _ => error::exit_code(Err(error::FatalError::Arguments)),
    };
    ExitCode::from(code)
}

//! The command line: a customer of the library like any other host.
//!
//! Progress and errors go to standard error, what was asked for alone to standard output. Nothing in here keeps
//! state between runs.

mod approvals;
mod args;
mod destination;
mod doctor;
mod exit;
mod failure;
mod host;
#[cfg(feature = "anthropic")]
mod hosted_args;
#[cfg(feature = "docker")]
mod image;
mod log;
mod run;
#[cfg(feature = "anthropic")]
mod service;
mod session_args;
mod sessions;
mod signals;
mod skills;
mod terminal;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use conjure::{Config, Environment, Settings};

use crate::cli::args::{Args, Subcommand};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::terminal::Terminal;

/// Reads the command line, does what it says, and gives the exit code.
pub(crate) fn main() -> ExitCode {
    let environment = Environment::of_process();
    let terminal = Arc::new(Terminal::of_process(&environment));
    let args = match Args::of_process() {
        Ok(args) => args,
        // Help and version go to standard output and are no failure; clap knows which is which.
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            terminal.clap(&error);
            return written(exit, &terminal).into();
        }
    };
    let done = start(args, &environment, &terminal);
    let exit = done.unwrap_or_else(|failure| {
        terminal.failure(&failure);
        failure.exit
    });
    written(exit, &terminal).into()
}

/// What was asked for and could not be written was not done.
fn written(exit: Exit, terminal: &Terminal) -> Exit {
    match terminal.output_failure() {
        None => exit,
        Some(reason) => {
            terminal.failure(&Failure::internal(reason));
            if exit == Exit::Done { Exit::Failed } else { exit }
        }
    }
}

fn start(args: Args, environment: &Environment, terminal: &Arc<Terminal>) -> Result<Exit, Failure> {
    log::start(environment)?;
    let file = args.config.or_else(|| Config::default_file(environment));
    let config = Config::layered(Settings::default(), environment, file.as_deref());
    match args.command {
        Subcommand::Run(args) => {
            let run = run::run(Arc::from(args), config?, environment.clone(), Arc::clone(terminal));
            in_runtime(signals::never_stuck(run))
        }
        #[cfg(feature = "docker")]
        Subcommand::Image(args) => {
            let args::ImageCommand::Build(args) = args.command;
            in_runtime(signals::never_stuck(image::build(args, environment.clone(), Arc::clone(terminal))))
        }
        Subcommand::Sessions(args) => {
            let sessions =
                sessions::sessions(args.command, config?, environment.clone(), Arc::clone(terminal));
            in_runtime(signals::never_stuck(sessions))
        }
        Subcommand::Skills(args) => {
            in_runtime(skills::skills(args.command, config?, environment.clone(), Arc::clone(terminal)))
        }
        // It reports a broken configuration like everything else that is broken.
        Subcommand::Doctor(args) => in_runtime(doctor::doctor(&args, config, environment, terminal)),
    }
}

/// Runs `work` in a Tokio runtime that ends with it.
fn in_runtime(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("the runtime did not start: {error}")))?;
    let done = runtime.block_on(work);
    // A thread that reads standard input cannot be interrupted: leave it behind, the process ends now.
    runtime.shutdown_timeout(Duration::ZERO);
    done
}

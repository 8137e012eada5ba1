//! The entry point of the command: parses the command line, starts the log, runs the subcommand, and returns the exit code.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use conjure::{Config, ProcessEnv, Settings};
use tracing_subscriber::EnvFilter;

use crate::cli::acp;
#[cfg(feature = "docker")]
use crate::cli::args::ImageCommand;
use crate::cli::args::{Args, McpCommand, Subcommand};
use crate::cli::chat;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::doctor;
#[cfg(feature = "docker")]
use crate::cli::image;
use crate::cli::keys;
use crate::cli::mcp;
#[cfg(feature = "model-http")]
use crate::cli::models;
use crate::cli::run;
use crate::cli::serve;
use crate::cli::sessions;
use crate::cli::signals;
use crate::cli::signals::EndingSignals;
use crate::cli::skills;
use crate::cli::terminal::Terminal;

/// Parses the command line, runs the subcommand, and returns the exit code.
pub(crate) fn main() -> ExitCode {
    let environment = ProcessEnv::from_process();
    let terminal = Arc::new(Terminal::of_process(&environment));
    let args = match Args::of_process() {
        Ok(args) => args,
        // Help and version are printed on standard output and are not errors. clap distinguishes them.
        Err(error) => {
            let exit = if error.use_stderr() { ExitStatus::Usage } else { ExitStatus::Success };
            terminal.clap(&error);
            return check_output(exit, &terminal).into();
        }
    };
    let exit = terminal.exit_status(run_command(args, &environment, &terminal));
    check_output(exit, &terminal).into()
}

/// Reports output that could not be written as an error.
fn check_output(exit: ExitStatus, terminal: &Terminal) -> ExitStatus {
    match terminal.output_failure() {
        None => exit,
        Some(reason) => {
            terminal.error(&CliError::internal(reason));
            if exit == ExitStatus::Success { ExitStatus::Failed } else { exit }
        }
    }
}

fn run_command(
    args: Args,
    environment: &ProcessEnv,
    terminal: &Arc<Terminal>,
) -> Result<ExitStatus, CliError> {
    start_log(environment)?;
    let of_option = args.config;
    let file = of_option.clone().or_else(|| Config::default_file(environment));
    let config = Config::from_layers(Settings::default(), environment, file.as_deref());
    match args.command {
        Subcommand::Run(args) => {
            let run = run::run(*args, config?, environment.clone(), Arc::clone(terminal));
            in_runtime(signals::with_forced_exit(EndingSignals::All, run))
        }
        Subcommand::Chat(args) => {
            let chat = chat::chat(*args, config?, environment.clone(), Arc::clone(terminal));
            in_runtime(signals::with_forced_exit(EndingSignals::Termination, chat))
        }
        Subcommand::Serve(args) => {
            let serve = serve::serve(*args, of_option, config?, environment.clone(), Arc::clone(terminal));
            in_runtime(signals::with_forced_exit(EndingSignals::All, serve))
        }
        Subcommand::Keys(args) => {
            let keys = keys::keys(args.command, config?, environment.clone(), Arc::clone(terminal));
            in_runtime(signals::with_forced_exit(EndingSignals::All, keys))
        }
        Subcommand::Acp(args) => {
            let acp = acp::acp(args, config?, environment.clone(), Arc::clone(terminal));
            in_runtime(async { Ok(acp.await) })
        }
        Subcommand::Mcp(args) => {
            let (config, environment, terminal) = (config?, environment.clone(), Arc::clone(terminal));
            match args.command {
                McpCommand::Serve(args) => {
                    let serve = mcp::serve(args, config, environment, terminal);
                    in_runtime(async { Ok(serve.await) })
                }
                McpCommand::Login(args) => {
                    let login = mcp::login(args, config, environment, terminal);
                    in_runtime(signals::with_forced_exit(EndingSignals::All, login))
                }
                McpCommand::Logout(args) => {
                    let logout = mcp::logout(args, config, environment, terminal);
                    in_runtime(signals::with_forced_exit(EndingSignals::All, logout))
                }
            }
        }
        #[cfg(feature = "docker")]
        Subcommand::Image(args) => {
            let ImageCommand::Build(args) = args.command;
            let build = image::build(args, environment.clone(), Arc::clone(terminal));
            in_runtime(signals::with_forced_exit(EndingSignals::All, build))
        }
        Subcommand::Sessions(args) => {
            let sessions =
                sessions::sessions(args.command, config?, environment.clone(), Arc::clone(terminal));
            in_runtime(signals::with_forced_exit(EndingSignals::All, sessions))
        }
        Subcommand::Skills(args) => {
            in_runtime(skills::skills(args.command, config?, environment.clone(), Arc::clone(terminal)))
        }
        #[cfg(feature = "model-http")]
        Subcommand::Models(args) => {
            let config = config?;
            in_runtime(models::models(args, &config, environment, terminal))
        }
        // The doctor reports a broken configuration as a finding.
        Subcommand::Doctor(args) => in_runtime(doctor::doctor(&args, config, environment, terminal)),
    }
}

/// Runs `work` in a Tokio runtime that ends with it.
fn in_runtime(work: impl Future<Output = Result<ExitStatus, CliError>>) -> Result<ExitStatus, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::internal(format!("the runtime did not start: {error}")))?;
    let done = runtime.block_on(work);
    // A thread that reads standard input cannot be interrupted. It ends with the process.
    runtime.shutdown_timeout(Duration::ZERO);
    done
}

/// Starts the log if the environment enables it. The log never contains the content of messages.
fn start_log(environment: &ProcessEnv) -> Result<(), CliError> {
    let Some(filter) = environment.log_filter() else { return Ok(()) };
    let filter = EnvFilter::builder().parse(filter).map_err(|error| {
        CliError::usage(format!("the environment variable CONJURE_LOG cannot be used: {error}"))
            .with_hint("a level such as `info`, or `conjure_sandbox=debug`")
    })?;
    let colour = io::stderr().is_terminal() && !environment.no_color();
    // No other subscriber can be set: this runs first.
    let _ = tracing_subscriber::fmt()
        // Reporting a closed standard error on standard error would panic.
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(colour)
        .try_init();
    Ok(())
}

//! The entry point of the command: parses the command line, starts the log, runs the subcommand, and returns the exit code.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use conjure::{Config, ProcessEnv, Settings};
use tracing_subscriber::EnvFilter;

#[cfg(feature = "acp")]
use crate::cli::acp;
#[cfg(feature = "docker")]
use crate::cli::args::ImageCommand;
#[cfg(feature = "mcp")]
use crate::cli::args::McpCommand;
use crate::cli::args::{Args, Subcommand};
use crate::cli::chat;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::doctor;
#[cfg(feature = "docker")]
use crate::cli::image;
#[cfg(feature = "serve")]
use crate::cli::keys;
#[cfg(feature = "mcp")]
use crate::cli::mcp;
#[cfg(feature = "model-http")]
use crate::cli::models;
use crate::cli::run;
#[cfg(feature = "serve")]
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
    let exit = terminal.exit_status(run_command(args, environment, Arc::clone(&terminal)));
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

fn run_command(args: Args, environment: ProcessEnv, terminal: Arc<Terminal>) -> Result<ExitStatus, CliError> {
    start_log(&environment, &terminal)?;
    let of_option = args.config;
    let file = of_option.clone().or_else(|| Config::default_file(&environment));
    let config = Config::from_layers(Settings::default(), &environment, file.as_deref());
    match args.command {
        Subcommand::Run(args) => {
            in_task(EndingSignals::All, &terminal, run::run(*args, config?, environment, terminal.clone()))
        }
        Subcommand::Chat(args) => {
            let chat = chat::chat(*args, config?, environment, terminal.clone());
            in_task(EndingSignals::Termination, &terminal, chat)
        }
        #[cfg(feature = "serve")]
        Subcommand::Serve(args) => {
            let serve = serve::serve(*args, of_option, config?, environment, terminal.clone());
            in_task(EndingSignals::All, &terminal, serve)
        }
        #[cfg(feature = "serve")]
        Subcommand::Keys(args) => {
            let keys = keys::keys(args.command, config?, environment, terminal.clone());
            in_task(EndingSignals::All, &terminal, keys)
        }
        #[cfg(not(feature = "serve"))]
        Subcommand::Serve(_) | Subcommand::Keys(_) => Err(not_built("serve")),
        #[cfg(feature = "acp")]
        Subcommand::Acp(args) => in_runtime(acp::acp(args, config?, environment, terminal)),
        #[cfg(not(feature = "acp"))]
        Subcommand::Acp(_) => Err(not_built("acp")),
        #[cfg(feature = "mcp")]
        Subcommand::Mcp(args) => match args.command {
            McpCommand::Serve(args) => in_runtime(mcp::serve(args, config?, environment, terminal)),
            McpCommand::Login(args) => in_task(
                EndingSignals::All,
                &terminal,
                mcp::login(args, config?, environment, terminal.clone()),
            ),
            McpCommand::Logout(args) => {
                let logout = mcp::logout(args, config?, environment, terminal.clone());
                in_task(EndingSignals::All, &terminal, logout)
            }
        },
        #[cfg(not(feature = "mcp"))]
        Subcommand::Mcp(_) => Err(not_built("mcp")),
        #[cfg(feature = "docker")]
        Subcommand::Image(args) => {
            let ImageCommand::Build(args) = args.command;
            in_task(EndingSignals::All, &terminal, image::build(args, environment, terminal.clone()))
        }
        Subcommand::Sessions(args) => {
            let sessions = sessions::sessions(args.command, config?, environment, terminal.clone());
            in_task(EndingSignals::All, &terminal, sessions)
        }
        Subcommand::Skills(args) => in_runtime(skills::skills(args.command, config?, environment, terminal)),
        #[cfg(feature = "model-http")]
        Subcommand::Models(args) => in_runtime(models::models(args, &config?, &environment, &terminal)),
        // The doctor reports a broken configuration as a finding.
        Subcommand::Doctor(args) => in_runtime(doctor::doctor(&args, config, &environment, &terminal)),
    }
}

/// The error of a command that this program does not have.
#[cfg(not(all(feature = "acp", feature = "mcp", feature = "serve")))]
fn not_built(feature: &str) -> CliError {
    CliError::usage(format!("this program was built without the feature `{feature}`, which has this command"))
        .with_hint("install the command with `cargo install --path . --features full`")
}

/// Runs `work` as a task, until it or the program is ended by a signal.
fn in_task(
    ending: EndingSignals,
    terminal: &Arc<Terminal>,
    work: impl Future<Output = Result<ExitStatus, CliError>> + Send + 'static,
) -> Result<ExitStatus, CliError> {
    in_runtime(signals::with_forced_exit(ending, Arc::clone(terminal), work))
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

/// Starts the log if the environment enables it. The log never contains the content of messages. Its lines quote errors and names of others, so
/// they pass through the terminal as all output does. For that they have no colours.
fn start_log(environment: &ProcessEnv, terminal: &Arc<Terminal>) -> Result<(), CliError> {
    let Some(filter) = environment.log_filter() else { return Ok(()) };
    let filter = EnvFilter::builder().parse(filter).map_err(|error| {
        CliError::usage(format!("the environment variable CONJURE_LOG cannot be used: {error}"))
            .with_hint("a level such as `info`, or `conjure_sandbox=debug`")
    })?;
    let terminal = Arc::clone(terminal);
    // No other subscriber can be set: this runs first.
    let _ = tracing_subscriber::fmt()
        // Reporting a closed standard error on standard error would panic.
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_writer(move || LogWriter(Arc::clone(&terminal)))
        .with_ansi(false)
        .try_init();
    Ok(())
}

/// Writes the lines of the log. Each write is one line.
struct LogWriter(Arc<Terminal>);

impl io::Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.note(String::from_utf8_lossy(line).trim_end());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! Logging to standard error, for those who ask for it with `CONJURE_LOG`.

use std::io::{self, IsTerminal as _};

use conjure::Environment;
use tracing_subscriber::EnvFilter;

use crate::cli::failure::Failure;

/// Starts logging when the environment asks for it. Content of messages is not logged, only what happened.
pub(crate) fn start(environment: &Environment) -> Result<(), Failure> {
    let Some(filter) = environment.log_filter() else { return Ok(()) };
    let filter = EnvFilter::builder().parse(filter).map_err(|error| {
        Failure::usage(format!("the environment variable CONJURE_LOG cannot be used: {error}"))
            .hint("a level such as `info`, or `conjure_sandbox=debug`")
    })?;
    let colour = io::stderr().is_terminal() && !environment.refuses_colour();
    // Nobody else can have set one: this is the first thing that the program does.
    let _ = tracing_subscriber::fmt()
        // A closed standard error would be told on standard error, which panics.
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(colour)
        .try_init();
    Ok(())
}

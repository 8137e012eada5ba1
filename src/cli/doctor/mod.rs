//! `conjure doctor`: what this machine offers, and how to mend what is missing.
//!
//! Nothing is guessed that can be tried: the sandbox is started, the programs are asked for their versions in
//! it, the engine's socket is connected to. Changes nothing on the machine.

mod check;
mod engine;
mod kernel;
mod sandbox;
mod skills;

pub(crate) use sandbox::start;

use conjure::{Config, ConfigError, Environment};

use crate::cli::args::{DoctorArgs, Format};
use crate::cli::doctor::check::{Check, Finding};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::terminal::Terminal;

/// Makes all checks and prints them. Fails when something is missing that this version needs.
pub(crate) async fn doctor(
    args: &DoctorArgs,
    config: Result<Config, ConfigError>,
    environment: &Environment,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let configured = config.as_ref().map(Config::executor).unwrap_or_default();
    let mut checks = sandbox::checks(environment, configured).await;
    checks.extend(kernel::checks());
    checks.extend(engine::checks(config.as_ref().ok(), environment).await);
    checks.push(key(environment));
    match config {
        Ok(config) => {
            checks.push(Check::new("configuration", Finding::Good("valid".to_owned())));
            checks.extend(skills::checks(&config));
        }
        Err(error) => {
            let remedy = error.hint().unwrap_or_else(|| "mend it, or remove it".to_owned());
            checks.push(
                Check::new("configuration", Finding::Missing(error.to_string())).needed().remedy(remedy),
            );
        }
    }
    match args.format {
        Format::Text => checks.iter().for_each(|check| terminal.output(&check.text())),
        Format::Json => terminal.output(&check::json(&checks)),
    }
    Ok(if checks.iter().any(Check::is_fatal) { Exit::Failed } else { Exit::Done })
}

fn key(environment: &Environment) -> Check {
    if environment.has_api_key() {
        Check::new("model key", Finding::Good("ANTHROPIC_API_KEY is set".to_owned()))
    } else {
        Check::new("model key", Finding::Missing("ANTHROPIC_API_KEY is not set".to_owned()))
            .remedy("not needed while the model's words come from a script; export it for a live model")
    }
}

//! `conjure doctor`: reports what this machine offers, and how to add what is missing.
//!
//! Everything is tried rather than guessed: it starts a sandbox, asks programs in it for their versions, and connects
//! to the engine's socket. It changes nothing on the machine.

use conjure::config::ConfigError;
use conjure::{Config, ProcessEnv};

use crate::cli::args::{DoctorArgs, Format};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::doctor::check::{self, Check, Finding};
use crate::cli::doctor::{engine, kernel, sandbox, skills};
use crate::cli::terminal::Terminal;

/// Runs and prints all checks. Fails if something is missing that this version needs.
pub(crate) async fn doctor(
    args: &DoctorArgs,
    config: Result<Config, ConfigError>,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
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
    Ok(if checks.iter().any(Check::is_fatal) { ExitStatus::Failed } else { ExitStatus::Success })
}

fn key(environment: &ProcessEnv) -> Check {
    if environment.has_api_key() {
        Check::new("model key", Finding::Good("ANTHROPIC_API_KEY is set".to_owned()))
    } else {
        Check::new("model key", Finding::Missing("ANTHROPIC_API_KEY is not set".to_owned()))
            .remedy("not needed while the model's words come from a script; export it for a live model")
    }
}

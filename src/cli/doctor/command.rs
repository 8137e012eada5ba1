//! `conjure doctor`: reports what this machine supports, and how to add what is missing.
//!
//! Every check is a real attempt: it starts a sandbox, runs programs in it for their versions, and connects to the engine's socket. It
//! changes nothing on the machine.

use conjure::config::{ConfigError, MODEL_KEYS};
use conjure::{Config, ProcessEnv};

use crate::cli::args::{DoctorArgs, Format};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::doctor::check::{self, Check, Finding};
use crate::cli::doctor::engine;
use crate::cli::doctor::kernel;
use crate::cli::doctor::sandbox;
use crate::cli::doctor::skills;
use crate::cli::terminal::Terminal;
#[cfg(feature = "model-http")]
use crate::cli::terminal::printable;

/// Runs and prints all checks. Fails if a requirement of this version is missing.
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
    checks.push(keys(environment));
    #[cfg(feature = "model-http")]
    if let Ok(config) = &config
        && !config.models().is_empty()
    {
        checks.push(configured_models(config, environment).await);
    }
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

/// The check of the vendors' API keys in the environment.
fn keys(environment: &ProcessEnv) -> Check {
    let set: Vec<_> = environment.model_keys().collect();
    if set.is_empty() {
        let names: Vec<_> = MODEL_KEYS.into();
        Check::new("model key", Finding::Missing(format!("none of {} is set", names.join(", ")))).remedy(
            "not needed for scripts and for local models (`--model ollama:NAME`); export one for a service",
        )
    } else {
        let verb = if set.len() == 1 { "is" } else { "are" };
        Check::new("model key", Finding::Good(format!("{} {verb} set", set.join(", "))))
    }
}

/// Asks the services of the configured models.
#[cfg(feature = "model-http")]
async fn configured_models(config: &Config, environment: &ProcessEnv) -> Check {
    use crate::cli::models::{ServiceState, service_states};

    let mut services = service_states(config, environment).await;
    services.truncate(config.models().len());
    let told = |service: &ServiceState| format!("`{}` {}", printable(&service.name), service.summary());
    let silent: Vec<_> = services.iter().filter(|service| !service.answers()).map(told).collect();
    if silent.is_empty() {
        let count = services.len();
        Check::new("models", Finding::Good(format!("the services of all {count} configured models answer")))
    } else {
        Check::new("models", Finding::Missing(silent.join("; ")))
            .remedy("`conjure models` shows how each is reached")
    }
}

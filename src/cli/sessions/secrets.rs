//! What is kept out of what is told of a session.
//!
//! Results of tools were redacted when they were recorded; what the model said was not. So the secrets that this process knows
//! of the session are kept out of all that is printed.

use std::collections::BTreeMap;

use conjure::{ContextOptions, Environment, Profile};

use crate::cli::args::Variable;
use crate::cli::failure::Failure;
use crate::cli::run::variables;
use crate::cli::terminal::Terminal;

/// From here on they are redacted: those whose names the session has, where this process has their values, those that are
/// given, and the key.
pub(super) fn redact(
    profile: &Profile,
    given: &[Variable],
    process: &Environment,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let known = profile.withheld.environment.iter().chain(&profile.withheld.secrets);
    let mut secrets: BTreeMap<String, String> =
        known.filter_map(|name| Some((name.clone(), Environment::passed_on(name)?))).collect();
    secrets.extend(variables(given)?);
    if process.has_api_key()
        && let Some(key) = Environment::passed_on("ANTHROPIC_API_KEY")
    {
        secrets.insert("ANTHROPIC_API_KEY".to_owned(), key);
    }
    terminal.redact(ContextOptions { secrets, ..ContextOptions::default() }.redactor());
    Ok(())
}

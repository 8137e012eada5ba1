//! Selects the model: API client or script.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::model::ScriptedModel;
use conjure::{Config, Model, ProcessEnv, RuntimeOptions};

use crate::cli::cli_error::CliError;
use crate::cli::run::usage_report::PriceCheck;

/// The selected model.
pub(crate) struct SelectedModel {
    /// The name that the session records.
    pub(crate) name: String,
    pub(crate) model: Arc<dyn Model>,
    /// Describes it in one line.
    pub(crate) label: String,
    /// Its secrets by name, which are redacted.
    pub(crate) secrets: BTreeMap<String, String>,
    /// The models without a known price; `None` if it costs nothing.
    pub(crate) price_check: Option<PriceCheck>,
    /// The script.
    script: Option<PathBuf>,
}

/// The name that sessions record for any script.
pub(crate) const SCRIPT: &str = "script";

/// The metadata key of the script's path.
const NOTE: &str = "conjure.script";

/// The model options of the command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelArgs<'a> {
    pub(crate) model: Option<&'a str>,
    pub(crate) script: Option<&'a Path>,
    /// How many calls were made before with the same script.
    pub(crate) calls_before: usize,
}

impl SelectedModel {
    /// The metadata of a session that names the script.
    pub(crate) fn script_note(&self) -> Option<(&'static str, String)> {
        let path = std::path::absolute(self.script.as_deref()?).ok()?;
        Some((NOTE, path.to_string_lossy().into_owned()))
    }

    /// Gives the key of a live model to the runtime, which redacts it.
    #[cfg(feature = "anthropic")]
    pub(crate) fn with_key(&self, options: RuntimeOptions, environment: &ProcessEnv) -> RuntimeOptions {
        match environment.api_key().filter(|_| !self.secrets.is_empty()) {
            Some(key) => options.anthropic(key),
            None => options,
        }
    }

    /// There is no key in this build.
    #[cfg(not(feature = "anthropic"))]
    pub(crate) fn with_key(&self, options: RuntimeOptions, _: &ProcessEnv) -> RuntimeOptions {
        options
    }
}

/// The script that a session's metadata names.
pub(crate) fn script_from_notes(notes: &BTreeMap<String, String>) -> Option<&str> {
    notes.get(NOTE).map(String::as_str)
}

/// Selects the model of the command line. Reads files; call it on a thread of a Tokio runtime that may block.
pub(crate) fn select_model(
    source: ModelArgs<'_>,
    record: Option<&Path>,
    config: &Config,
    environment: &ProcessEnv,
) -> Result<SelectedModel, CliError> {
    match (source.model, source.script) {
        (Some(model), None) => live_model(model, config, environment),
        (None, Some(script)) => scripted_model(script, record, source.calls_before),
        (Some(_), Some(_)) => Err(CliError::usage("`--model` and `--script` exclude each other")
            .with_hint("`--model NAME` calls a model; `--script FILE` plays one")),
        (None, None) => Err(CliError::usage("where the model's words come from must be said").with_hint(
            "`--model NAME` calls a model with the key in `ANTHROPIC_API_KEY`; `--script FILE` plays one without",
        )),
    }
}

fn scripted_model(
    script: &Path,
    record: Option<&Path>,
    calls_before: usize,
) -> Result<SelectedModel, CliError> {
    let model = ScriptedModel::from_file(script).map_err(|error| {
        CliError::usage(error.to_string())
            .with_hint("`--script` names a file with the model's words, in YAML or JSON")
    })?;
    if let Some(record) = record
        && record
            .canonicalize()
            .is_ok_and(|record| script.canonicalize().is_ok_and(|script| script == record))
    {
        // The script is in memory already, so the recording would overwrite its source.
        return Err(CliError::usage(format!(
            "`--record`: `{}` is the script that is played",
            record.display()
        ))
        .with_hint("name another file: a recording replaces what is there"));
    }
    let label = format!("the model's words come from the script {}; the tools are real", script.display());
    Ok(SelectedModel {
        name: SCRIPT.to_owned(),
        model: Arc::new(model.starting_at(calls_before)),
        label,
        secrets: BTreeMap::new(),
        price_check: None,
        script: Some(script.to_owned()),
    })
}

#[cfg(feature = "anthropic")]
fn live_model(name: &str, config: &Config, environment: &ProcessEnv) -> Result<SelectedModel, CliError> {
    use conjure::anthropic::{self, Client, DEFAULT_BASE_URL};
    use secrecy::ExposeSecret as _;

    use crate::cli::hosted_client::unconfigured_error;

    if name.trim().is_empty() {
        return Err(
            CliError::usage("`--model`: the name is empty").with_hint("such as `--model claude-sonnet-4-5`")
        );
    }
    let key = environment.api_key().ok_or_else(|| {
        CliError::usage(format!("the model `{name}` needs a key, and `ANTHROPIC_API_KEY` is not set"))
            .with_hint("`export ANTHROPIC_API_KEY=…`, or play a script with `--script FILE`")
    })?;
    let secrets = BTreeMap::from([("ANTHROPIC_API_KEY".to_owned(), key.expose_secret().to_owned())]);
    let client = Client::new(&anthropic::config(config, key)).map_err(unconfigured_error)?;
    let model = client.messages(anthropic::options(config, name)).map_err(unconfigured_error)?;
    // The client refuses an address with a password.
    let at = config.base_url().filter(|url| *url != DEFAULT_BASE_URL);
    let label = match at {
        Some(url) => format!("the model is {name} at {url}"),
        None => format!("the model is {name}"),
    };
    Ok(SelectedModel {
        name: name.to_owned(),
        model: Arc::new(model),
        label,
        secrets,
        script: None,
        price_check: Some(Box::new(move || client.models_without_price())),
    })
}

#[cfg(not(feature = "anthropic"))]
fn live_model(name: &str, _: &Config, _: &ProcessEnv) -> Result<SelectedModel, CliError> {
    Err(CliError::usage(format!(
        "the model `{name}` cannot be called: this program was built without `anthropic`"
    ))
    .with_hint("play a script with `--script FILE`, or build it with the feature `anthropic`"))
}

//! Selects the model: a client of an API, or a script.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::model::ScriptedModel;
#[cfg(feature = "model-http")]
use conjure::model::{ConnectError, HttpConfigError, ModelClients, ModelTargetError};
use conjure::{Config, Model, ProcessEnv, RuntimeOptions};

use crate::cli::cli_error::CliError;
use crate::cli::run::printing::usage_report::PriceCheck;

/// The selected model.
pub(crate) struct SelectedModel {
    /// The name that the session records.
    pub(crate) name: String,
    pub(crate) model: Arc<dyn Model>,
    /// A description of the model in one line.
    pub(crate) label: String,
    /// Its secrets by name, which are redacted.
    pub(crate) secrets: BTreeMap<String, String>,
    /// Returns the used models without a known price. `None` if the model costs nothing.
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
    /// The number of earlier calls with the same script.
    pub(crate) calls_before: usize,
}

impl SelectedModel {
    /// The metadata of a session that names the script.
    pub(crate) fn script_note(&self) -> Option<(&'static str, String)> {
        let path = std::path::absolute(self.script.as_deref()?).ok()?;
        Some((NOTE, path.to_string_lossy().into_owned()))
    }

    /// Gives the keys of a live model to the runtime, which redacts them.
    #[cfg(feature = "anthropic")]
    pub(crate) fn with_key(&self, options: RuntimeOptions, environment: &ProcessEnv) -> RuntimeOptions {
        let options = options.model_keys(environment);
        match environment.api_key().filter(|_| !self.secrets.is_empty()) {
            Some(key) => options.anthropic(key),
            None => options,
        }
    }

    /// This build has no client that needs a key.
    #[cfg(not(feature = "anthropic"))]
    pub(crate) fn with_key(&self, options: RuntimeOptions, _: &ProcessEnv) -> RuntimeOptions {
        options
    }
}

/// The script that a session's metadata names.
pub(crate) fn script_from_notes(notes: &BTreeMap<String, String>) -> Option<&str> {
    notes.get(NOTE).map(String::as_str)
}

/// Selects the model of the command line. Reads files, so call it on a blocking thread of a Tokio runtime.
pub(crate) fn select_model(
    source: ModelArgs<'_>,
    record: Option<&Path>,
    config: &Config,
    environment: &ProcessEnv,
) -> Result<SelectedModel, CliError> {
    let configured = config.model().filter(|_| source.script.is_none());
    match (source.model.or(configured), source.script) {
        (Some(model), None) => live_model(model, config, environment),
        (None, Some(script)) => scripted_model(script, record, source.calls_before),
        (Some(_), Some(_)) => Err(CliError::usage("`--model` and `--script` exclude each other")
            .with_hint("`--model NAME` calls a model; `--script FILE` plays one")),
        (None, None) => Err(CliError::usage("no model is named").with_hint(
            "`--model NAME` calls a model: `claude-sonnet-4-5`, `openai:NAME`, `gemini:NAME`, `ollama:NAME`; `--script FILE` plays one without a \
             key",
        )),
    }
}

/// Reads the file of `--script`.
pub(crate) fn read_script(path: &Path) -> Result<ScriptedModel, CliError> {
    ScriptedModel::from_file(path).map_err(|error| {
        CliError::usage(error.to_string())
            .with_hint("`--script` names a file with the model's words, in YAML or JSON")
    })
}

fn scripted_model(
    script: &Path,
    record: Option<&Path>,
    calls_before: usize,
) -> Result<SelectedModel, CliError> {
    let model = read_script(script)?;
    if let Some(record) = record
        && record
            .canonicalize()
            .is_ok_and(|record| script.canonicalize().is_ok_and(|script| script == record))
    {
        // The script is already in memory, so the recording would overwrite its source.
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

/// A model of a service.
#[cfg(feature = "model-http")]
fn live_model(name: &str, config: &Config, environment: &ProcessEnv) -> Result<SelectedModel, CliError> {
    let connected = ModelClients::default().connect(name, config, environment);
    let connected = connected.map_err(|error| connect_error(&error, config))?;
    let target = &connected.target;
    // The vendor's default URL is not shown. The client refuses a URL with a password.
    let is_configured = config.models().contains_key(name);
    let is_usual = target.model == name && !is_configured && config.base_url().is_none();
    let label = if is_usual { format!("the model is {name}") } else { format!("the model is {target}") };
    Ok(SelectedModel {
        name: name.to_owned(),
        model: Arc::clone(&connected.model),
        label,
        secrets: connected.secrets.clone(),
        script: None,
        price_check: Some(Box::new(move || connected.models_without_price())),
    })
}

/// The error of a model that cannot be called, with a hint how to fix it.
#[cfg(feature = "model-http")]
pub(crate) fn connect_error(error: &ConnectError, config: &Config) -> CliError {
    let failure = CliError::usage(error.to_string());
    match error {
        ConnectError::NoKey { variable, .. } if variable == "ANTHROPIC_API_KEY" => failure.with_hint(format!(
            "`export ANTHROPIC_API_KEY=…`; name another service by `openai:NAME`, `gemini:NAME` or `ollama:NAME`{}; or play a script \
             with `--script FILE`",
            configured_names(config)
        )),
        ConnectError::NoKey { variable, .. } => failure
            .with_hint(format!("`export {variable}=…`, or play a script with `--script FILE`")),
        ConnectError::Target(ModelTargetError::UnknownVendor { suggestion: Some(vendor), .. }) => {
            failure.with_hint(format!("did you mean `{vendor}:NAME`?"))
        }
        ConnectError::Target(ModelTargetError::UnknownVendor { .. }) => {
            failure.with_hint("`conjure models` lists what is configured")
        }
        ConnectError::Target(ModelTargetError::Empty | ModelTargetError::NoModel(_)) => {
            failure.with_hint("such as `--model claude-sonnet-4-5` or `--model ollama:qwen3`")
        }
        ConnectError::NotBuilt { feature, .. } => {
            failure.with_hint(format!("build it with `--features {feature}`, or play a script with `--script FILE`"))
        }
        ConnectError::Http { error: HttpConfigError::Key { .. }, variable: Some(variable) } => {
            failure.with_hint(format!("the key is taken from `{variable}`"))
        }
        ConnectError::Http { error: HttpConfigError::BaseUrl { .. }, variable }
            if variable.as_deref() == Some("ANTHROPIC_API_KEY") =>
        {
            failure.with_hint("it is taken from `ANTHROPIC_BASE_URL`, or from `base_url` in the configuration file")
        }
        ConnectError::Http { error: HttpConfigError::BaseUrl { .. }, .. } => failure.with_hint(
            "it is `base_url` of the model's table in the configuration file, or taken from `OPENAI_BASE_URL` or `OLLAMA_HOST`; a server \
             without a key may have `http://`",
        ),
        _ => failure,
    }
}

/// The names of configured models, as the end of a hint.
#[cfg(feature = "model-http")]
fn configured_names(config: &Config) -> String {
    let names: Vec<_> = config.models().keys().map(|name| format!("`{name}`")).collect();
    if names.is_empty() { String::new() } else { format!("; configured are {}", names.join(", ")) }
}

#[cfg(not(feature = "model-http"))]
fn live_model(name: &str, _: &Config, _: &ProcessEnv) -> Result<SelectedModel, CliError> {
    Err(CliError::usage(format!(
        "the model `{name}` cannot be called: this program was built without clients of models"
    ))
    .with_hint("play a script with `--script FILE`, or build it with `anthropic`, `openai` or `gemini`"))
}

//! Where the model's words come from: a live model, or a script.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::{Config, Environment, Model, RuntimeOptions, ScriptedModel};

use crate::cli::failure::Failure;
use crate::cli::run::used::Tariff;

/// A model, and what the user is told of it.
pub(crate) struct Words {
    /// What a session knows it by.
    pub(crate) name: String,
    pub(crate) model: Arc<dyn Model>,
    /// Where its words come from, in a line.
    pub(crate) said: String,
    /// What it needs and nobody else may see, by name.
    pub(crate) secrets: BTreeMap<String, String>,
    /// How what it consumes is told; none where it costs nothing.
    pub(crate) tariff: Option<Tariff>,
    /// The script that is played.
    script: Option<PathBuf>,
}

/// What a session calls any script.
pub(crate) const SCRIPT: &str = "script";

/// The session's note of which script it was.
const NOTE: &str = "conjure.script";

/// What the command line says of the model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) model: Option<&'a str>,
    pub(crate) script: Option<&'a Path>,
    /// The calls that were made before with the same script.
    pub(crate) calls_before: usize,
}

impl Words {
    /// Notes of a session about them.
    pub(crate) fn note(&self) -> Option<(&'static str, String)> {
        let path = std::path::absolute(self.script.as_deref()?).ok()?;
        Some((NOTE, path.to_string_lossy().into_owned()))
    }

    /// The runtime knows the key of a live model, so that it leaves no sandbox.
    #[cfg(feature = "anthropic")]
    pub(crate) fn with_key(&self, options: RuntimeOptions, environment: &Environment) -> RuntimeOptions {
        match environment.api_key().filter(|_| !self.secrets.is_empty()) {
            Some(key) => options.anthropic(key),
            None => options,
        }
    }

    /// There is none.
    #[cfg(not(feature = "anthropic"))]
    pub(crate) fn with_key(&self, options: RuntimeOptions, _: &Environment) -> RuntimeOptions {
        options
    }
}

/// The script that a session's notes name.
pub(crate) fn noted(notes: &BTreeMap<String, String>) -> Option<&str> {
    notes.get(NOTE).map(String::as_str)
}

/// The model that the command line names. Reads files, and is for a thread of a Tokio runtime that may block.
pub(crate) fn words(
    source: Source<'_>,
    record: Option<&Path>,
    config: &Config,
    environment: &Environment,
) -> Result<Words, Failure> {
    match (source.model, source.script) {
        (Some(model), None) => live(model, config, environment),
        (None, Some(script)) => scripted(script, record, source.calls_before),
        (Some(_), Some(_)) => Err(Failure::usage("`--model` and `--script` exclude each other")
            .hint("`--model NAME` calls a model; `--script FILE` plays one")),
        (None, None) => Err(Failure::usage("where the model's words come from must be said").hint(
            "`--model NAME` calls a model with the key in `ANTHROPIC_API_KEY`; `--script FILE` plays one without",
        )),
    }
}

fn scripted(script: &Path, record: Option<&Path>, calls_before: usize) -> Result<Words, Failure> {
    let model = ScriptedModel::from_file(script).map_err(|error| {
        Failure::usage(error.to_string())
            .hint("`--script` names a file with the model's words, in YAML or JSON")
    })?;
    if let Some(record) = record
        && record
            .canonicalize()
            .is_ok_and(|record| script.canonicalize().is_ok_and(|script| script == record))
    {
        // The script is in memory already; what its author wrote would be gone.
        return Err(Failure::usage(format!(
            "`--record`: `{}` is the script that is played",
            record.display()
        ))
        .hint("name another file: a recording replaces what is there"));
    }
    let said = format!("the model's words come from the script {}; the tools are real", script.display());
    Ok(Words {
        name: SCRIPT.to_owned(),
        model: Arc::new(model.starting_at(calls_before)),
        said,
        secrets: BTreeMap::new(),
        tariff: None,
        script: Some(script.to_owned()),
    })
}

#[cfg(feature = "anthropic")]
fn live(name: &str, config: &Config, environment: &Environment) -> Result<Words, Failure> {
    use conjure::anthropic::{self, Client, DEFAULT_BASE_URL};
    use secrecy::ExposeSecret as _;

    use crate::cli::service::unusable;

    if name.trim().is_empty() {
        return Err(
            Failure::usage("`--model`: the name is empty").hint("such as `--model claude-sonnet-4-5`")
        );
    }
    let key = environment.api_key().ok_or_else(|| {
        Failure::usage(format!("the model `{name}` needs a key, and `ANTHROPIC_API_KEY` is not set"))
            .hint("`export ANTHROPIC_API_KEY=…`, or play a script with `--script FILE`")
    })?;
    let secrets = BTreeMap::from([("ANTHROPIC_API_KEY".to_owned(), key.expose_secret().to_owned())]);
    let client = Client::new(&anthropic::config(config, key)).map_err(unusable)?;
    let model = client.messages(anthropic::options(config, name)).map_err(unusable)?;
    // The client has refused an address that holds a password.
    let at = config.base_url().filter(|url| *url != DEFAULT_BASE_URL);
    let said = match at {
        Some(url) => format!("the model is {name} at {url}"),
        None => format!("the model is {name}"),
    };
    Ok(Words {
        name: name.to_owned(),
        model: Arc::new(model),
        said,
        secrets,
        script: None,
        tariff: Some(Box::new(move || client.unpriced_models())),
    })
}

#[cfg(not(feature = "anthropic"))]
fn live(name: &str, _: &Config, _: &Environment) -> Result<Words, Failure> {
    Err(Failure::usage(format!(
        "the model `{name}` cannot be called: this program was built without `anthropic`"
    ))
    .hint("play a script with `--script FILE`, or build it with the feature `anthropic`"))
}

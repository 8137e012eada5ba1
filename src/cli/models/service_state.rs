//! The services that provide models, and whether they answer.

use std::time::Duration;

use conjure::model::{
    ConnectError, ConnectedModel, KeyVariable, ListedModel, ModelApi, ModelClients, ModelTarget,
};
use conjure::{Config, ProcessEnv};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::cli::terminal::printable;

/// The timeout for an answer of a service.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The vendors that need no configuration.
const VENDORS: [&str; 4] = ["anthropic", "openai", "gemini", "ollama"];

/// A service behind a name, and whether it answers.
pub(crate) struct ServiceState {
    /// A configured name, or `VENDOR:NAME`.
    pub(crate) name: String,
    /// The API, the service's name of the model, and the URL. `None` if the name is not valid.
    target: Option<ModelTarget>,
    pub(crate) state: Reachability,
}

/// Whether a service answers.
pub(crate) enum Reachability {
    /// The service answered with its list of models.
    Answers(Vec<ListedModel>),
    /// The key is not set, so no request was sent.
    NoKey(String),
    /// A request was sent, but no list of models was received.
    Unreachable(String),
    /// No request is possible: the configuration is wrong, or this build has no client for the API.
    Unusable(String),
}

/// Sends a request to all services concurrently, except to those without a key.
pub(crate) async fn service_states(config: &Config, environment: &ProcessEnv) -> Vec<ServiceState> {
    let clients = ModelClients::default();
    let names = config.models().keys().cloned().chain(VENDORS.map(|vendor| format!("{vendor}:NAME")));
    let asked = names.map(|name| {
        let clients = clients.clone();
        async move { ServiceState::ask(name, &clients, config, environment).await }
    });
    join_all(asked).await
}

impl ServiceState {
    /// Requests the models of the service behind this name.
    pub(crate) async fn ask(
        name: String,
        clients: &ModelClients,
        config: &Config,
        environment: &ProcessEnv,
    ) -> Self {
        let target = ModelTarget::of_name(&name, config, environment).ok();
        let state = match clients.connect(&name, config, environment) {
            Ok(connected) => Reachability::of(&connected).await,
            Err(ConnectError::NoKey { variable, .. }) => Reachability::NoKey(variable),
            Err(error) => Reachability::Unusable(error.to_string()),
        };
        Self { name, target, state }
    }

    /// Whether the service answers.
    pub(crate) const fn answers(&self) -> bool {
        matches!(self.state, Reachability::Answers(_))
    }

    /// The name of the API, as the configuration writes it.
    pub(super) fn api(&self) -> &'static str {
        match self.target.as_ref().map(ModelTarget::api) {
            Some(ModelApi::Messages) => "messages",
            Some(ModelApi::Chat) => "chat",
            Some(ModelApi::Responses) => "responses",
            Some(ModelApi::Gemini) => "gemini",
            _ => "",
        }
    }

    /// The address of the service.
    pub(super) fn address(&self) -> String {
        self.target.as_ref().map(ModelTarget::address).unwrap_or_default()
    }

    /// Describes the state.
    pub(crate) fn described(&self) -> String {
        match &self.state {
            Reachability::Answers(models) => match models.len() {
                1 => "answers, with 1 model".to_owned(),
                count => format!("answers, with {count} models"),
            },
            Reachability::NoKey(variable) => format!("no key: `{variable}` is not set"),
            Reachability::Unreachable(reason) | Reachability::Unusable(reason) => printable(reason),
        }
    }

    /// Describes the state briefly, for a table.
    pub(crate) fn summary(&self) -> String {
        match &self.state {
            // The hint is only shown in the output for this service alone.
            Reachability::Unreachable(reason) => printable(reason.split("; ").next().unwrap_or(reason)),
            _ => self.described(),
        }
    }

    /// One JSON object.
    pub(super) fn json(&self) -> Value {
        let (state, reason) = match &self.state {
            Reachability::Answers(_) => ("answers", None),
            Reachability::NoKey(variable) => ("no_key", Some(variable)),
            Reachability::Unreachable(reason) => ("unreachable", Some(reason)),
            Reachability::Unusable(reason) => ("unusable", Some(reason)),
        };
        let key = match self.target.as_ref().map(|target| &target.key) {
            Some(KeyVariable::Required(variable) | KeyVariable::Optional(variable)) => Some(variable),
            _ => None,
        };
        let models = match &self.state {
            Reachability::Answers(models) => models.iter().map(model_json).collect(),
            _ => Vec::new(),
        };
        json!({
            "name": self.name,
            "api": self.api(),
            "model": self.target.as_ref().map(|target| &target.model),
            "base_url": self.address(),
            "key_env": key,
            "state": state,
            "reason": reason,
            "models": models,
        })
    }
}

fn model_json(model: &ListedModel) -> Value {
    json!({"id": model.id, "context_tokens": model.context_tokens})
}

impl Reachability {
    async fn of(connected: &ConnectedModel) -> Self {
        match connected.list(TIMEOUT).await {
            Ok(models) => Self::Answers(models),
            Err(error) => Self::Unreachable(error.to_string()),
        }
    }
}

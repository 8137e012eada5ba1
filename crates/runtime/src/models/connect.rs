//! [`ModelClients`]: the clients of model services. Each service and key has one client, so that all users of it share a
//! rate limiter.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Digest, lock};
use conjure_conversation::{Model, ModelApi, ModelError};
use conjure_model_http::{HttpClient, HttpConfigError, ListedModel};
#[cfg(any(feature = "openai", feature = "gemini"))]
use conjure_model_http::{HttpConfig, KeyHeader, ServiceApi, ServiceModel};
use secrecy::{ExposeSecret as _, SecretString};

use crate::config::{Config, ProcessEnv};
use crate::models::call_settings::CallSettings;
use crate::models::connect_error::ConnectError;
use crate::models::context::with_context;
use crate::models::fallback::FallbackModel;
#[cfg(feature = "anthropic")]
use crate::models::http_settings::key_digest;
use crate::models::http_settings::{NamedKey, client_id, http_config};
use crate::models::model_target::{KeyVariable, ModelTarget};

/// The clients of model services. Clones share them.
#[derive(Clone, Default)]
pub struct ModelClients(Arc<Mutex<BTreeMap<Digest, CachedClient>>>);

/// A shared client.
struct CachedClient {
    /// The digest of its key, if that is the usual key of the Messages API. Tenants may have such keys of their own, and
    /// give them up.
    tenant_key: Option<Digest>,
    client: ServiceClient,
}

#[derive(Clone)]
enum ServiceClient {
    #[cfg(feature = "anthropic")]
    Messages(conjure_anthropic::Client),
    #[cfg_attr(
        not(any(feature = "openai", feature = "gemini")),
        expect(dead_code, reason = "no wire needs it")
    )]
    Http(HttpClient),
}

impl ServiceClient {
    /// The client, if its service may list the contexts of its models.
    fn http_client(&self) -> Option<HttpClient> {
        match self {
            // Servers that speak the Messages API do not list them.
            #[cfg(feature = "anthropic")]
            Self::Messages(_) => None,
            Self::Http(client) => Some(client.clone()),
        }
    }
}

/// A model that can be called, with the facts that the embedder needs about it.
#[derive(Clone)]
pub struct ConnectedModel {
    /// The model, with its fallbacks.
    pub model: Arc<dyn Model>,
    /// The service behind it.
    pub target: ModelTarget,
    /// Its keys and secret headers by name. They must be redacted.
    pub secrets: BTreeMap<String, String>,
    clients: Vec<ServiceClient>,
}

impl ModelClients {
    /// Connects the model of this name with the keys of this environment. Sends no request.
    ///
    /// # Errors
    /// If no service belongs to the name, if a key is missing, or if the configuration cannot be used.
    pub fn connect(
        &self,
        name: &str,
        config: &Config,
        environment: &ProcessEnv,
    ) -> Result<ConnectedModel, ConnectError> {
        let target = ModelTarget::of_name(name, config, environment)?;
        let keys = |variable: &str| environment.named(variable).map(SecretString::from);
        self.connect_target(target, config, environment, &keys, &CallSettings::default())
    }

    /// Connects a target and its fallbacks for calls with these settings. `keys` returns the key in an environment
    /// variable.
    pub(crate) fn connect_target(
        &self,
        target: ModelTarget,
        config: &Config,
        environment: &ProcessEnv,
        keys: &dyn Fn(&str) -> Option<SecretString>,
        call: &CallSettings,
    ) -> Result<ConnectedModel, ConnectError> {
        let mut connected = self.connect_one(target, config, keys, call)?;
        let mut others = Vec::new();
        for name in &connected.target.settings.fallback.clone() {
            let target = ModelTarget::of_name(name, config, environment)?;
            let other = match self.connect_one(target, config, keys, call) {
                Ok(other) => other,
                // A fallback without its key cannot be used. The others still can.
                Err(error @ ConnectError::NoKey { .. }) => {
                    tracing::warn!("a fallback is left out: {error}");
                    continue;
                }
                Err(error) => return Err(error),
            };
            connected.secrets.extend(other.secrets);
            connected.clients.extend(other.clients);
            others.push(other.model);
        }
        if !others.is_empty() {
            connected.model = Arc::new(FallbackModel::new(connected.model, others));
        }
        Ok(connected)
    }

    fn connect_one(
        &self,
        mut target: ModelTarget,
        config: &Config,
        keys: &dyn Fn(&str) -> Option<SecretString>,
        call: &CallSettings,
    ) -> Result<ConnectedModel, ConnectError> {
        let lacks = |reason| ConnectError::Option { model: target.name.clone(), reason };
        call.apply(&mut target.settings).map_err(lacks)?;
        let key = match &target.key {
            KeyVariable::None => None,
            KeyVariable::Optional(variable) => keys(variable).map(|key| (variable.clone(), key)),
            KeyVariable::Required(variable) => match keys(variable) {
                Some(key) => Some((variable.clone(), key)),
                None => {
                    let (model, variable) = (target.name.clone(), variable.clone());
                    return Err(ConnectError::NoKey { model, variable });
                }
            },
        };
        let named = key.as_ref();
        let (model, client) = match target.api() {
            #[cfg(feature = "anthropic")]
            ModelApi::Messages => self.messages(&target, config, named)?,
            #[cfg(feature = "openai")]
            ModelApi::Chat => {
                self.service_model::<conjure_openai::ChatApi>(&target, config, named, KeyHeader::Bearer)?
            }
            #[cfg(feature = "openai")]
            ModelApi::Responses => {
                self.service_model::<conjure_openai::ResponsesApi>(&target, config, named, KeyHeader::Bearer)?
            }
            #[cfg(feature = "gemini")]
            ModelApi::Gemini => {
                let header = conjure_gemini::KEY_HEADER;
                self.service_model::<conjure_gemini::GeminiApi>(&target, config, named, header)?
            }
            api => {
                return Err(ConnectError::NotBuilt { model: target.name.clone(), feature: feature_of(api) });
            }
        };
        let mut secrets: BTreeMap<_, _> = target.settings.secret_headers().collect();
        secrets.extend(key.map(|(variable, key)| (variable, key.expose_secret().to_owned())));
        // If the service compacts by itself, Conjure must not. So the model gets no known context.
        let compacts_itself = target.api() == ModelApi::Messages && config.service_compaction().is_some();
        let model = if compacts_itself { model } else { with_context(model, &target, client.http_client()) };
        Ok(ConnectedModel { model, target, secrets, clients: vec![client] })
    }
}

/// The beta header that some models require in requests for faster output.
#[cfg(feature = "anthropic")]
const FAST_BETA: &str = "fast-mode-2026-02-01";

/// A model with the client that it uses.
type ModelAndClient = (Arc<dyn Model>, ServiceClient);

impl ModelClients {
    /// The client of the Messages API for this key.
    #[cfg(feature = "anthropic")]
    pub(crate) fn anthropic(
        &self,
        key: &SecretString,
        config: &Config,
    ) -> Result<conjure_anthropic::Client, conjure_anthropic::ConfigError> {
        let key = ("ANTHROPIC_API_KEY".to_owned(), key.clone());
        self.messages_client(&ModelTarget::anthropic(config), config, Some(&key))
    }

    /// The shared client of a service that speaks the Messages API.
    #[cfg(feature = "anthropic")]
    fn messages_client(
        &self,
        target: &ModelTarget,
        config: &Config,
        key: NamedKey<'_>,
    ) -> Result<conjure_anthropic::Client, conjure_anthropic::ConfigError> {
        let id = client_id(target, config, key);
        // The lock is held while the client is created, so that two concurrent sessions share one.
        let mut clients = lock(&self.0);
        if let Some(CachedClient { client: ServiceClient::Messages(client), .. }) = clients.get(&id) {
            return Ok(client.clone());
        }
        let secret = key.map_or_else(SecretString::default, |(_, key)| key.clone());
        let service = crate::anthropic::config(config, secret);
        let service = service.with_http(|http| http_config(http, target, config, key));
        let client = conjure_anthropic::Client::new(&service)?;
        let tenant_key =
            key.filter(|(variable, _)| variable == "ANTHROPIC_API_KEY").and_then(|key| key_digest(Some(key)));
        clients.insert(id, CachedClient { tenant_key, client: ServiceClient::Messages(client.clone()) });
        Ok(client)
    }

    /// Removes the cached clients whose tenant key is not in `used`. Clients without a tenant key stay. A removed client
    /// still works for its current users.
    pub(crate) fn retain_used(&self, used: &BTreeSet<Digest>) {
        lock(&self.0).retain(|_, cached| cached.tenant_key.is_none_or(|key| used.contains(&key)));
    }

    /// The number of cached clients.
    #[cfg(all(test, feature = "anthropic"))]
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    #[cfg(feature = "anthropic")]
    fn messages(
        &self,
        target: &ModelTarget,
        config: &Config,
        key: NamedKey<'_>,
    ) -> Result<ModelAndClient, ConnectError> {
        let wrong = |reason: String| ConnectError::Option { model: target.name.clone(), reason };
        let client = self.messages_client(target, config, key).map_err(|error| match error {
            conjure_anthropic::ConfigError::Http(error) => unusable(error, key),
            other => wrong(other.to_string()),
        })?;
        let settings = &target.settings;
        let mut options = crate::anthropic::options(config, &target.model);
        if let Some(max_tokens) = settings.max_tokens {
            options = options.with_max_tokens(max_tokens);
        }
        for (name, value) in &settings.body {
            options =
                options.with_field(name, value.clone()).map_err(|error| wrong(format!("`body`: {error}")))?;
        }
        if settings.body.get("speed").is_some_and(|speed| speed == "fast") {
            options = options.with_beta(FAST_BETA);
        }
        if settings.parallel_tool_calls == Some(false) {
            let choice = serde_json::json!({"type": "auto", "disable_parallel_tool_use": true});
            options = options.with_field("tool_choice", choice).map_err(|error| wrong(error.to_string()))?;
        }
        let model = client.messages(options).map_err(|error| wrong(error.to_string()))?;
        Ok((Arc::new(model), ServiceClient::Messages(client)))
    }

    /// A model of an API whose client has nothing but model calls.
    #[cfg(any(feature = "openai", feature = "gemini"))]
    fn service_model<A: ServiceApi>(
        &self,
        target: &ModelTarget,
        config: &Config,
        key: NamedKey<'_>,
        header: KeyHeader,
    ) -> Result<ModelAndClient, ConnectError> {
        let refuse = |reason: String| ConnectError::Option { model: target.name.clone(), reason };
        let settings = &target.settings;
        let mut options = ServiceModel::<A>::options(&target.model);
        if let Some(max_tokens) = settings.max_tokens.or(config.max_tokens()) {
            options = options.with_max_tokens(max_tokens);
        }
        match settings.parallel_tool_calls {
            None => {}
            Some(_) if A::API == ModelApi::Gemini => {
                let reason =
                    "Gemini decides itself whether it calls several tools; leave out `parallel_tool_calls`";
                return Err(refuse(reason.to_owned()));
            }
            Some(allowed) => options = options.with_parallel_tool_calls(allowed),
        }
        for (name, value) in &settings.body {
            options = options
                .with_field(name, value.clone())
                .map_err(|error| refuse(format!("`body`: {error}")))?;
        }
        let client = self.http(target, config, key, header)?;
        let model = ServiceModel::<A>::new(client.clone(), options);
        Ok((Arc::new(model), ServiceClient::Http(client)))
    }

    /// The shared client of a service that has no client type of its own.
    #[cfg(any(feature = "openai", feature = "gemini"))]
    fn http(
        &self,
        target: &ModelTarget,
        config: &Config,
        key: NamedKey<'_>,
        header: KeyHeader,
    ) -> Result<HttpClient, ConnectError> {
        let id = client_id(target, config, key);
        // The lock is held while the client is created, as for the Messages API.
        let mut clients = lock(&self.0);
        if let Some(known) = clients.get(&id).and_then(|known| known.client.http_client()) {
            return Ok(known);
        }
        let http = HttpConfig::new(&target.base_url);
        let http = match key {
            Some((_, key)) => http.with_key(key.clone(), header),
            None => http,
        };
        let client =
            HttpClient::new(&http_config(http, target, config, key)).map_err(|error| unusable(error, key))?;
        let cached = CachedClient { tenant_key: None, client: ServiceClient::Http(client.clone()) };
        clients.insert(id, cached);
        Ok(client)
    }
}

fn unusable(error: HttpConfigError, key: NamedKey<'_>) -> ConnectError {
    ConnectError::Http { error, variable: key.map(|(variable, _)| variable.clone()) }
}

/// The feature of this crate that contains the client of an API.
const fn feature_of(api: ModelApi) -> &'static str {
    match api {
        ModelApi::Messages => "anthropic",
        ModelApi::Chat | ModelApi::Responses => "openai",
        ModelApi::Gemini => "gemini",
        _ => "full",
    }
}

impl ConnectedModel {
    /// The models that the service lists. Makes one request, with this timeout.
    ///
    /// # Errors
    /// If the service cannot be reached, or lists no models.
    pub async fn list(&self, timeout: Duration) -> Result<Vec<ListedModel>, ModelError> {
        match self.clients.first() {
            #[cfg(feature = "anthropic")]
            Some(ServiceClient::Messages(client)) => {
                client.http().list_models(&["v1", "models"], timeout).await
            }
            Some(ServiceClient::Http(client)) => client.list_models(&["models"], timeout).await,
            None => Ok(Vec::new()),
        }
    }

    /// The client of the model itself, if its service speaks the Messages API.
    #[cfg(feature = "anthropic")]
    pub(crate) fn messages_client(&self) -> Option<&conjure_anthropic::Client> {
        match self.clients.first() {
            Some(ServiceClient::Messages(client)) => Some(client),
            _ => None,
        }
    }

    /// The models that have responded and have no known price. Their calls count as free.
    #[must_use]
    pub fn models_without_price(&self) -> Vec<String> {
        let names = self.clients.iter().flat_map(|client| match client {
            #[cfg(feature = "anthropic")]
            ServiceClient::Messages(client) => client.models_without_price(),
            ServiceClient::Http(client) => client.models_without_price(),
        });
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl fmt::Debug for ConnectedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectedModel")
            .field("target", &self.target)
            .field("secrets", &self.secrets.keys())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ModelClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelClients").field("clients", &lock(&self.0).len()).finish()
    }
}

//! The models of a runtime, or of one of its tenants, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::admission::{AdmissionGate, AdmittedModel};
use conjure_base::{Digest, TenantId};
use conjure_conversation::Model;
#[cfg(feature = "anthropic")]
use secrecy::ExposeSecret as _;
#[cfg(feature = "model-http")]
use secrecy::SecretString;

use crate::config::{Config, ProcessEnv};
use crate::models::{CallSettings, ModelClients, ModelTarget};
#[cfg(feature = "model-http")]
use crate::models::{ConnectError, ConnectedModel};
use crate::runtime::error::RuntimeError;

/// How long a model call waits for admission. The limits of its turn may end it sooner.
pub(crate) const ADMISSION_TIMEOUT: Duration = Duration::from_secs(600);
/// The variable of the key for the Messages API.
#[cfg(feature = "model-http")]
const ANTHROPIC_KEY: &str = "ANTHROPIC_API_KEY";

/// The models of a runtime or of one tenant, by name.
///
/// It has the models that the embedder or the tenant added. It also finds models of services that the configuration, a
/// key or the environment names.
#[derive(Clone, Default)]
pub(crate) struct ModelRegistry {
    by_name: BTreeMap<String, Arc<dyn Model>>,
    pub(crate) default: Option<String>,
    /// The environment with the keys of services.
    environment: ProcessEnv,
    clients: ModelClients,
    #[cfg(feature = "anthropic")]
    key: Option<SecretString>,
    #[cfg(feature = "anthropic")]
    client: Option<crate::anthropic::Client>,
}

impl ModelRegistry {
    /// Adds a model. The first one is the default, unless another is named.
    pub(crate) fn add(&mut self, name: String, model: Arc<dyn Model>) {
        self.default.get_or_insert_with(|| name.clone());
        self.by_name.insert(name, model);
    }

    #[cfg(feature = "anthropic")]
    pub(crate) fn set_key(&mut self, key: SecretString) {
        self.key = Some(key);
    }

    /// Sets the environment from which the keys of services are read.
    pub(crate) fn set_environment(&mut self, environment: ProcessEnv) {
        self.environment = environment;
    }

    /// The secrets to be redacted, by name: all keys and headers that a request to a service may have.
    pub(crate) fn secrets(&self, config: &Config) -> BTreeMap<String, String> {
        let mut secrets = ModelTarget::secrets(config, &self.environment);
        secrets.extend(self.own_key());
        secrets
    }

    /// The key that was set, to be redacted under its name.
    pub(crate) fn own_key(&self) -> BTreeMap<String, String> {
        #[cfg(feature = "anthropic")]
        if let Some(key) = &self.key {
            return [(ANTHROPIC_KEY.to_owned(), key.expose_secret().to_owned())].into();
        }
        BTreeMap::new()
    }

    /// Creates the client for the key, if a key is set. Requests to all services use `clients` from now on.
    pub(crate) fn connect(&mut self, config: &Config, clients: &ModelClients) -> Result<(), RuntimeError> {
        self.clients = clients.clone();
        #[cfg(feature = "anthropic")]
        if let Some(key) = &self.key {
            let client = clients.anthropic(key, config);
            let name = self.default.clone().unwrap_or_else(|| "(any)".to_owned());
            self.client =
                Some(client.map_err(|error| RuntimeError::Client { name, reason: error.to_string() })?);
        }
        let _ = config;
        Ok(())
    }

    /// The digest of the key, if a key is set.
    pub(crate) fn key_digest(&self) -> Option<Digest> {
        #[cfg(feature = "anthropic")]
        return self.key.as_ref().map(|key| Digest::of_bytes(key.expose_secret().as_bytes()));
        #[cfg(not(feature = "anthropic"))]
        None
    }

    /// The client for the key, if a key is set.
    #[cfg(feature = "anthropic")]
    pub(crate) const fn client(&self) -> Option<&crate::anthropic::Client> {
        self.client.as_ref()
    }

    /// The name of the model for a session that asks for `wanted`, or for no model. `own` is the tenant's registry, and
    /// its default comes first.
    pub(crate) fn name<'m>(
        &'m self,
        own: &'m Self,
        wanted: Option<&'m str>,
        config: &'m Config,
    ) -> Result<&'m str, RuntimeError> {
        let default = || own.default.as_deref().or(self.default.as_deref()).or(config.model());
        wanted.or_else(default).ok_or(RuntimeError::NoModel)
    }

    /// The model of this name for calls of this tenant with these settings. Each call passes the admission gate.
    pub(crate) fn find(
        &self,
        own: &Self,
        name: &str,
        tenant: &TenantId,
        gate: &AdmissionGate,
        config: &Config,
        call: &CallSettings,
    ) -> Result<Arc<dyn Model>, RuntimeError> {
        let model = self.named_with(own, name, config, call)?;
        Ok(Arc::new(AdmittedModel::new(model, gate.clone(), tenant.clone(), ADMISSION_TIMEOUT)))
    }

    /// The model of this name, without the admission gate.
    pub(crate) fn named(
        &self,
        own: &Self,
        name: &str,
        config: &Config,
    ) -> Result<Arc<dyn Model>, RuntimeError> {
        self.named_with(own, name, config, &CallSettings::default())
    }

    fn named_with(
        &self,
        own: &Self,
        name: &str,
        config: &Config,
        call: &CallSettings,
    ) -> Result<Arc<dyn Model>, RuntimeError> {
        if let Some(given) = own.by_name.get(name).or_else(|| self.by_name.get(name)) {
            if let Some(setting) = call.first_unsupported_setting() {
                let reason =
                    format!("{setting}: a model of the embedder cannot apply this setting; remove it");
                return Err(RuntimeError::Client { name: name.to_owned(), reason });
            }
            return Ok(Arc::clone(given));
        }
        #[cfg(feature = "model-http")]
        if let Some(connected) = self.of_service(own, name, config, call)? {
            return Ok(connected.model);
        }
        Err(RuntimeError::UnknownModel { name: name.to_owned(), available: self.names(own, config) })
    }

    /// The client of the Messages API behind this name, and the service's name of the model. `None` for any other model.
    #[cfg(feature = "anthropic")]
    pub(crate) fn messages_client(
        &self,
        own: &Self,
        name: &str,
        config: &Config,
    ) -> Result<Option<(crate::anthropic::Client, String)>, RuntimeError> {
        if own.by_name.contains_key(name) || self.by_name.contains_key(name) {
            return Ok(None);
        }
        let connected = self.of_service(own, name, config, &CallSettings::default())?;
        Ok(connected.and_then(|connected| {
            let client = connected.messages_client()?.clone();
            Some((client, connected.target.model))
        }))
    }

    /// The names of the models that the embedder, the tenant and the configuration define. Sorted, without duplicates.
    pub(crate) fn names(&self, own: &Self, config: &Config) -> Vec<String> {
        let names = own.by_name.keys().chain(self.by_name.keys()).chain(config.models().keys());
        names.cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The model of a service. `None` if the name does not name a service and there is no key for the Messages API.
    #[cfg(feature = "model-http")]
    fn of_service(
        &self,
        own: &Self,
        name: &str,
        config: &Config,
        call: &CallSettings,
    ) -> Result<Option<ConnectedModel>, RuntimeError> {
        let keys = |variable: &str| {
            #[cfg(not(feature = "anthropic"))]
            let _ = own;
            #[cfg(feature = "anthropic")]
            if variable == ANTHROPIC_KEY
                && let Some(key) = own.key.as_ref().or(self.key.as_ref())
            {
                return Some(key.clone());
            }
            self.environment.named(variable).map(SecretString::from)
        };
        if !ModelTarget::names_service(name, config) && keys(ANTHROPIC_KEY).is_none() {
            return Ok(None);
        }
        let connected = ModelTarget::of_name(name, config, &self.environment)
            .map_err(ConnectError::from)
            .and_then(|target| self.clients.connect_target(target, config, &self.environment, &keys, call));
        let unusable =
            |error: ConnectError| RuntimeError::Client { name: name.to_owned(), reason: error.to_string() };
        Ok(Some(connected.map_err(unusable)?))
    }
}

impl fmt::Debug for ModelRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelRegistry")
            .field("by_name", &self.by_name.keys())
            .field("default", &self.default)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "anthropic"))]
mod tests {
    use super::*;
    use crate::config::Settings;

    /// The client holds the rate limiter, so there is one for each key.
    #[test]
    fn who_has_one_key_has_one_client_and_who_has_another_has_another() {
        // Without TLS, so that no certificates are needed.
        let nowhere = Settings { base_url: Some("http://127.0.0.1:9".to_owned()), ..Settings::default() };
        let (clients, config) = (ModelClients::default(), Config::default().with(nowhere).unwrap());
        let with = |key: &str| {
            let mut models = ModelRegistry::default();
            models.set_key(key.to_owned().into());
            models.connect(&config, &clients).unwrap();
            models
        };
        let count = || clients.len();
        let [host, one, two, other] =
            ["shared", "mine", "mine", "theirs"].map(|key| with(&format!("sk-{key}")));
        assert_eq!(count(), 3);
        assert_eq!(one.key_digest(), two.key_digest());
        let digests = [&host, &one, &other].map(|models| models.key_digest().unwrap());
        assert_eq!(digests.iter().collect::<BTreeSet<_>>().len(), 3);
        // A tenant's key wins over the embedder's, and its models are known to no other tenant.
        assert!(host.named(&one, "some-model", &config).is_ok());
        clients.retain_used(&[digests[0]].into());
        assert_eq!(count(), 1);
        assert!(!format!("{one:?}").contains("sk-mine"));
    }
}

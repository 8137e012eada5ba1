//! The models of a runtime, or of one of its tenants, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::admission::{AdmissionGate, AdmittedModel};
use conjure_base::{Digest, TenantId};
use conjure_conversation::Model;
#[cfg(feature = "anthropic")]
use secrecy::{ExposeSecret as _, SecretString};

use crate::config::Config;
use crate::runtime::error::RuntimeError;

/// How long a model call waits for admission. The limits of its turn may end it sooner.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(600);

/// The clients of the service, one for each key, so that all users of a key share its rate limiter. Clones share the
/// cache.
#[derive(Clone, Default)]
pub(crate) struct ClientCache {
    #[cfg(feature = "anthropic")]
    by_key: Arc<std::sync::Mutex<BTreeMap<Digest, crate::anthropic::Client>>>,
}

impl ClientCache {
    /// The client of this key.
    #[cfg(feature = "anthropic")]
    fn client(
        &self,
        key: &SecretString,
        config: &Config,
    ) -> Result<crate::anthropic::Client, crate::anthropic::ConfigError> {
        let mut clients = self.by_key.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let digest = digest(key);
        if let Some(known) = clients.get(&digest) {
            return Ok(known.clone());
        }
        let client = crate::anthropic::Client::new(&crate::anthropic::config(config, key.clone()))?;
        clients.insert(digest, client.clone());
        Ok(client)
    }

    /// Removes clients whose keys nobody has any more. Current users keep theirs.
    pub(crate) fn retain_used(&self, used: &BTreeSet<Digest>) {
        #[cfg(feature = "anthropic")]
        {
            let mut clients = self.by_key.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            clients.retain(|key, _| used.contains(key));
        }
        let _ = used;
    }
}

#[cfg(feature = "anthropic")]
fn digest(key: &SecretString) -> Digest {
    Digest::of_bytes(key.expose_secret().as_bytes())
}

/// The models that the embedder or a tenant added, and those of the service if there is a key.
#[derive(Clone, Default)]
pub(crate) struct ModelRegistry {
    by_name: BTreeMap<String, Arc<dyn Model>>,
    pub(crate) default: Option<String>,
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

    /// The secrets to be redacted, by name.
    pub(crate) fn secrets(&self) -> BTreeMap<String, String> {
        #[cfg(feature = "anthropic")]
        if let Some(key) = &self.key {
            return [("ANTHROPIC_API_KEY".to_owned(), key.expose_secret().to_owned())].into();
        }
        BTreeMap::new()
    }

    /// Creates the client of the service, if there is a key.
    pub(crate) fn connect(&mut self, config: &Config, clients: &ClientCache) -> Result<(), RuntimeError> {
        #[cfg(feature = "anthropic")]
        if let Some(key) = &self.key {
            let client = clients.client(key, config);
            let name = self.default.clone().unwrap_or_else(|| "(any)".to_owned());
            self.client =
                Some(client.map_err(|error| RuntimeError::Client { name, reason: error.to_string() })?);
        }
        let _ = (config, clients);
        Ok(())
    }

    /// The digest of the key, if there is one.
    pub(crate) fn key_digest(&self) -> Option<Digest> {
        #[cfg(feature = "anthropic")]
        return self.key.as_ref().map(digest);
        #[cfg(not(feature = "anthropic"))]
        None
    }

    /// The client of the key, if there is one.
    #[cfg(feature = "anthropic")]
    pub(crate) const fn client(&self) -> Option<&crate::anthropic::Client> {
        self.client.as_ref()
    }

    /// The name of the model for a session that asks for this one, or for none. The tenant may have models of its
    /// own.
    pub(crate) fn name<'m>(
        &'m self,
        own: &'m Self,
        wanted: Option<&'m str>,
    ) -> Result<&'m str, RuntimeError> {
        wanted.or(own.default.as_deref()).or(self.default.as_deref()).ok_or(RuntimeError::NoModel)
    }

    /// The model of this name for a session of this tenant, behind the admission gate.
    pub(crate) fn find(
        &self,
        own: &Self,
        name: &str,
        tenant: &TenantId,
        gate: &AdmissionGate,
        config: &Config,
    ) -> Result<Arc<dyn Model>, RuntimeError> {
        let model = self.named(own, name, config)?;
        Ok(Arc::new(AdmittedModel::new(model, gate.clone(), tenant.clone(), ADMISSION_TIMEOUT)))
    }

    /// The model of this name, without the admission gate.
    pub(crate) fn named(
        &self,
        own: &Self,
        name: &str,
        config: &Config,
    ) -> Result<Arc<dyn Model>, RuntimeError> {
        if let Some(given) = own.by_name.get(name).or_else(|| self.by_name.get(name)) {
            return Ok(Arc::clone(given));
        }
        #[cfg(feature = "anthropic")]
        if let Some(client) = own.client.as_ref().or(self.client.as_ref()) {
            let model = client.messages(crate::anthropic::options(config, name));
            let unusable = |reason: String| RuntimeError::Client { name: name.to_owned(), reason };
            return Ok(Arc::new(model.map_err(|error| unusable(error.to_string()))?));
        }
        let _ = config;
        Err(RuntimeError::UnknownModel {
            name: name.to_owned(),
            available: own
                .by_name
                .keys()
                .chain(self.by_name.keys())
                .cloned()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
        })
    }
}

impl fmt::Debug for ModelRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Models")
            .field("given", &self.by_name.keys())
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
        let (clients, config) = (ClientCache::default(), Config::default().with(nowhere).unwrap());
        let with = |key: &str| {
            let mut models = ModelRegistry::default();
            models.set_key(key.to_owned().into());
            models.connect(&config, &clients).unwrap();
            models
        };
        let count = || clients.by_key.lock().unwrap().len();
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

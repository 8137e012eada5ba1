//! The models of a runtime, by their names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::admission::{AdmittedModel, Gate};
use conjure_base::TenantId;
use conjure_conversation::Model;
#[cfg(feature = "anthropic")]
use secrecy::{ExposeSecret as _, SecretString};

use super::error::RuntimeError;
use crate::config::Config;

/// How long a call waits to be admitted. Its turn's own limits may end it sooner.
const ADMITTED_WITHIN: Duration = Duration::from_secs(600);

/// Those that the host gave, and those of the service where it gave a key.
#[derive(Clone, Default)]
pub(crate) struct Models {
    given: BTreeMap<String, Arc<dyn Model>>,
    pub(crate) default: Option<String>,
    /// What every call passes, where there is one.
    pub(crate) gate: Option<Gate>,
    #[cfg(feature = "anthropic")]
    key: Option<SecretString>,
    #[cfg(feature = "anthropic")]
    client: Option<crate::anthropic::Client>,
}

impl Models {
    /// The first one that is given is the default, unless another is named.
    pub(crate) fn give(&mut self, name: String, model: Arc<dyn Model>) {
        self.default.get_or_insert_with(|| name.clone());
        self.given.insert(name, model);
    }

    #[cfg(feature = "anthropic")]
    pub(crate) fn set_key(&mut self, key: SecretString) {
        self.key = Some(key);
    }

    /// What nobody may see, by name.
    pub(crate) fn secrets(&self) -> BTreeMap<String, String> {
        #[cfg(feature = "anthropic")]
        if let Some(key) = &self.key {
            return [("ANTHROPIC_API_KEY".to_owned(), key.expose_secret().to_owned())].into();
        }
        BTreeMap::new()
    }

    /// Makes the client of the service, where there is a key for it.
    pub(crate) fn connect(&mut self, config: &Config) -> Result<(), RuntimeError> {
        #[cfg(feature = "anthropic")]
        if let Some(key) = &self.key {
            let client = crate::anthropic::Client::new(&crate::anthropic::config(config, key.clone()));
            let name = self.default.clone().unwrap_or_else(|| "(any)".to_owned());
            self.client =
                Some(client.map_err(|error| RuntimeError::Client { name, reason: error.to_string() })?);
        }
        let _ = config;
        Ok(())
    }

    /// The name of the model of a session that names this one, or none.
    pub(crate) fn name<'m>(&'m self, wanted: Option<&'m str>) -> Result<&'m str, RuntimeError> {
        wanted.or(self.default.as_deref()).ok_or(RuntimeError::NoModel)
    }

    /// The model of this name, for a session of this tenant.
    pub(crate) fn find(
        &self,
        name: &str,
        tenant: &TenantId,
        config: &Config,
    ) -> Result<Arc<dyn Model>, RuntimeError> {
        let model = self.named(name, config)?;
        Ok(match &self.gate {
            Some(gate) => Arc::new(AdmittedModel::new(model, gate.clone(), tenant.clone(), ADMITTED_WITHIN)),
            None => model,
        })
    }

    fn named(&self, name: &str, config: &Config) -> Result<Arc<dyn Model>, RuntimeError> {
        if let Some(given) = self.given.get(name) {
            return Ok(Arc::clone(given));
        }
        #[cfg(feature = "anthropic")]
        if let Some(client) = &self.client {
            let model = client.messages(crate::anthropic::options(config, name));
            let unusable = |reason: String| RuntimeError::Client { name: name.to_owned(), reason };
            return Ok(Arc::new(model.map_err(|error| unusable(error.to_string()))?));
        }
        let _ = config;
        Err(RuntimeError::UnknownModel {
            name: name.to_owned(),
            available: self.given.keys().cloned().collect(),
        })
    }
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Models")
            .field("given", &self.given.keys())
            .field("default", &self.default)
            .finish_non_exhaustive()
    }
}

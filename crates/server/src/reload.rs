//! Replaces settings of a running server: its certificate, the models and skills that clients may name, and the rate limit.
//!
//! State: none of its own. A failed reload changes nothing.

use std::path::PathBuf;
use std::sync::Arc;

use conjure_runtime::ServeSettings;

use crate::http::TlsCertificate;
use crate::state::ServerState;

/// Why new settings are refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// A reload cannot turn TLS on or off.
    #[error("a running server cannot begin or cease to speak TLS; restart it")]
    Tls,
    /// A model cannot be used.
    #[error(
        "`[serve.models]`: the model `{model}` cannot be used: {reason}; a model that is new in `[models]` needs a restart"
    )]
    Model {
        /// The name of the model.
        model: String,
        /// The reason.
        reason: String,
    },
    /// A directory contains no skill.
    #[error("`[serve.skills]`: the directory {} has no file `SKILL.md`", dir.display())]
    Skill {
        /// The directory.
        dir: PathBuf,
    },
}

/// Changes the settings of a running server.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    state: Arc<ServerState>,
}

impl ServerHandle {
    pub(crate) const fn new(state: Arc<ServerState>) -> Self {
        Self { state }
    }

    /// Uses these settings and this certificate for later requests and connections. Checks the models and skills that the former settings
    /// did not name. The certificate files in the settings are not read.
    ///
    /// # Errors
    /// If the settings cannot be used. Nothing is changed then.
    pub async fn reload(
        &self,
        settings: ServeSettings,
        certificate: Option<TlsCertificate>,
    ) -> Result<(), ReloadError> {
        let state = &self.state;
        if certificate.is_some() != state.connections.tls.is_some() {
            return Err(ReloadError::Tls);
        }
        let former = state.settings.get();
        let tenant = &state.options.tenant;
        for model in settings.models.values().filter(|model| former.models.values().all(|old| old != *model))
        {
            state
                .runtime
                .check_model(tenant, model)
                .map_err(|error| ReloadError::Model { model: model.clone(), reason: error.to_string() })?;
        }
        for dir in settings.skills.values().filter(|dir| former.skills.values().all(|old| old != *dir)) {
            if !tokio::fs::try_exists(dir.join("SKILL.md")).await.unwrap_or(false) {
                return Err(ReloadError::Skill { dir: dir.clone() });
            }
        }
        if let (Some(tls), Some(certificate)) = (&state.connections.tls, certificate) {
            tls.exchange(certificate);
        }
        state.rate_limit.set_per_minute(settings.requests_per_minute);
        state.settings.exchange(settings);
        Ok(())
    }
}

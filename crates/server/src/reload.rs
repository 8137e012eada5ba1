//! What a server exchanges while it runs: its certificate, the models and skills that clients may name, and the rate of keys.
//!
//! State: none of its own. A reload that fails changes nothing.

use std::path::PathBuf;
use std::sync::Arc;

use conjure_runtime::ServeSettings;

use crate::http::TlsCertificate;
use crate::state::ServerState;

/// Why new settings are not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// TLS would begin or end.
    #[error("a running server cannot begin or cease to speak TLS; restart it")]
    Tls,
    /// A model does not answer.
    #[error(
        "`[serve.models]`: the model `{model}` cannot be used: {reason}; a model that is new in `[models]` needs a restart"
    )]
    Model {
        /// The name of the model.
        model: String,
        /// The reason.
        reason: String,
    },
    /// There is no skill in a folder.
    #[error("`[serve.skills]`: the folder {} has no file `SKILL.md`", folder.display())]
    Skill {
        /// The folder.
        folder: PathBuf,
    },
}

/// Changes what a server can exchange while it runs.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    state: Arc<ServerState>,
}

impl ServerHandle {
    pub(crate) const fn new(state: Arc<ServerState>) -> Self {
        Self { state }
    }

    /// Has requests and connections from now on use these settings and this certificate. The files that the settings name for TLS are not
    /// read. Models and skills that were not named before are checked.
    ///
    /// # Errors
    /// If they cannot be used. All stays as it was then.
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
        for folder in
            settings.skills.values().filter(|folder| former.skills.values().all(|old| old != *folder))
        {
            if !tokio::fs::try_exists(folder.join("SKILL.md")).await.unwrap_or(false) {
                return Err(ReloadError::Skill { folder: folder.clone() });
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

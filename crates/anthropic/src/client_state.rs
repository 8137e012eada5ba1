//! [`ClientState`]: the state that all calls of one key share.

use std::sync::Arc;

use conjure_base::Clock;
use conjure_model_http::HttpClient;

use crate::config::{ApiProfile, Config, ConfigError};
use crate::wire::MessagesWire;

/// The client of the service, with the API profile that its requests follow.
pub(crate) struct ClientState {
    pub(crate) http: HttpClient,
    pub(crate) wire: Arc<MessagesWire>,
    profile: ApiProfile,
}

impl ClientState {
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, ConfigError> {
        let http = HttpClient::with_clock(&config.http(), clock)?;
        Ok(Self { http, wire: Arc::new(MessagesWire), profile: config.profile() })
    }

    /// The API profile.
    pub(crate) const fn profile(&self) -> ApiProfile {
        self.profile
    }
}

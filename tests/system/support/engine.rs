//! The engines that the tests use.

use std::env;
use std::time::Duration;

use bollard::errors::Error;
use bollard::{API_DEFAULT_VERSION, Docker};
use conjure_sandbox::EngineAddress;

/// Longer than a machine with much to do needs for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where this machine's Docker Engine listens.
#[expect(clippy::disallowed_methods, reason = "users configure its location")]
pub(crate) fn docker() -> EngineAddress {
    let named = env::var("DOCKER_HOST").ok();
    EngineAddress::candidates(named.as_deref(), None).unwrap().swap_remove(0)
}

/// A client of the engine there.
pub(crate) async fn client(address: &EngineAddress) -> Result<Docker, Error> {
    let seconds = PATIENCE.as_secs();
    let client = match address {
        EngineAddress::Unix(path) => {
            Docker::connect_with_unix(path.to_str().unwrap(), seconds, API_DEFAULT_VERSION)
        }
        EngineAddress::Tcp(host) => Docker::connect_with_http(host, seconds, API_DEFAULT_VERSION),
    };
    client?.negotiate_version().await
}

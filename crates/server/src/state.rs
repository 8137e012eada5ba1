//! What all handlers share.

use conjure_runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::access::Keys;
use crate::options::ServerOptions;

/// What all handlers share.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) runtime: Runtime,
    pub(crate) options: ServerOptions,
    pub(crate) keys: Keys,
    /// Cancelled when the server stops: streams end with a last event.
    pub(crate) closing: CancellationToken,
}

//! [`Authorize`]: what services are sent to tell who asks.

use std::fmt;

use futures_util::future::BoxFuture;
use secrecy::SecretString;

/// Knows the bearer token for one service.
pub trait Authorize: fmt::Debug + Send + Sync {
    /// The token; `None` if there is none for this service. `refused` is a token that the service did not accept: it is renewed where that is
    /// possible, else `None`.
    ///
    /// # Errors
    /// Why there is no token now, for people; without secrets.
    fn token<'a>(
        &'a self,
        refused: Option<&'a SecretString>,
    ) -> BoxFuture<'a, Result<Option<SecretString>, String>>;

    /// What people can do when the service accepts nothing that there is.
    fn advice(&self) -> String;
}

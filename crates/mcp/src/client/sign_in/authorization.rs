//! [`Authorize`]: supplies the bearer tokens for services.

use std::fmt;

use futures_util::future::BoxFuture;
use secrecy::SecretString;

/// Supplies the bearer token for one service.
pub trait Authorize: fmt::Debug + Send + Sync {
    /// Returns the token. `None` if there is no token for this service.
    ///
    /// `refused` is a token that the service did not accept. It is renewed if possible; otherwise the result is `None`.
    ///
    /// # Errors
    /// The reason why there is no token now, for the user. It contains no secrets.
    fn token<'a>(
        &'a self,
        refused: Option<&'a SecretString>,
    ) -> BoxFuture<'a, Result<Option<SecretString>, String>>;

    /// What the user can do if the service accepts no token.
    fn advice(&self) -> String;
}

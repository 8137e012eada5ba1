//! Authentication: the tenant and the scopes of each caller.

mod authentication;
mod caller;
mod key;
mod keys;
mod rate_limit;
mod scope;

pub(crate) use authentication::{AuthenticationMode, Authenticator};
pub(crate) use caller::Caller;
pub use key::{ApiKey, ApiKeyId, ApiKeyTextError};
pub use keys::{ApiKeyInfo, ApiKeys, ApiKeysError, NewApiKey};
pub(crate) use rate_limit::RateLimit;
pub use scope::Scope;

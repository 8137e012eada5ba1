//! Who asks: a tenant, and what it may do.

mod admission;
mod caller;
mod key;
mod keys;

pub(crate) use admission::{Admission, AdmissionMode};
pub(crate) use caller::Caller;
pub use caller::Scope;
pub use key::{ApiKey, ApiKeyId, ApiKeyTextError};
pub use keys::{ApiKeyInfo, ApiKeys, ApiKeysError, NewApiKey};

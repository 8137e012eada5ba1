//! Who may ask: keys, their tenants and their scopes.

mod caller;
mod keys;

pub(crate) use caller::Caller;
pub use caller::Scope;
pub(crate) use keys::Keys;

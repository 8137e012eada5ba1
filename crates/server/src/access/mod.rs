//! Who may ask: keys, their tenants and their scopes.

mod caller;
mod keys;

pub use caller::Scope;
pub(crate) use caller::Caller;
pub(crate) use keys::Keys;

//! Who asks: a tenant, and what it may do.

mod caller;

pub(crate) use caller::Caller;
pub use caller::Scope;

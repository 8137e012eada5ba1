//! How sessions, and the runtime that has them, begin, rest, fail and end.

mod bounds;
mod ending;
mod failing;
mod idle_tenants;
pub(crate) mod leaving;
mod maintenance;
mod pausing;
mod runtime;

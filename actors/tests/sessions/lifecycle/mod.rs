//! How sessions, and the runtime that has them, begin, rest, fail and end.

mod ending;
mod failing;
mod idle_tenants;
mod maintenance;
pub(crate) mod passivation;
mod pausing;
mod runtime;
mod time_limits;

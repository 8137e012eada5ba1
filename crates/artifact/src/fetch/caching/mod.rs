//! Which responses are kept, and for how long.

#[cfg(feature = "fetch")]
pub(super) mod cache;
#[cfg(feature = "fetch")]
pub(super) mod freshness;
#[cfg(feature = "fetch")]
pub(super) mod single_flight;

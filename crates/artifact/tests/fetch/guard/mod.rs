//! Permitted targets of a fetch: hosts, addresses, networks and redirects.

mod environment;
mod networks;
mod redirects;
mod refused;

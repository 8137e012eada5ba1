//! Where a fetch may go: hosts, addresses, networks and redirects.

mod environment;
mod networks;
mod redirects;
mod refused;

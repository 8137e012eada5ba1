//! Environments of `conjure serve`: their jails, networks and packages.

mod network;
mod no_jail;
mod packages;

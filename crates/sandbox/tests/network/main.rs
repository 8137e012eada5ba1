//! The network of a jail, from its commands to servers of the test: real namespaces, the guest's tunnels, and the
//! guarded egress behind them.
//!
//! Programs that people use (`curl`, `python3`) must be there where `CONJURE_TEST_REQUIRE=all` is set; else their
//! absence is said aloud. Node speaks to proxies by `NODE_USE_ENV_PROXY` since 22.21 and 24.5, and is asked where it is
//! new enough.

#[cfg(test)]
mod clients;
#[cfg(test)]
mod connector_fixture;
#[cfg(test)]
mod isolation;
#[cfg(test)]
#[expect(dead_code, reason = "of the servers and names there, some are used here")]
#[path = "../../../egress/tests/it/support.rs"]
mod outside;
#[cfg(test)]
mod startup;
#[expect(dead_code, reason = "only a part of the module is used here")]
#[path = "../support/mod.rs"]
mod support;
#[cfg(test)]
mod transfers;
#[cfg(test)]
mod web;

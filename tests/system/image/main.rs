//! Images: the one that the tests run in, and the ones that users build.
//!
//! Needs an engine. Where none answers the tests say so and pass, unless `CONJURE_TEST_REQUIRE=all` is set.

mod built;
mod container;
mod server;
mod small;
#[expect(dead_code, reason = "only a part of the module is used here")]
#[path = "../support/mod.rs"]
mod support;

//! The fake's skills with their versions, files and containers. All are in memory and end with the fake.

mod containers;
mod json;
mod multipart_parser;
mod routes;
mod run;
mod store;
mod upload;
mod zip;

pub(super) use containers::{Hosting, RequestedContainer};
pub(super) use routes::{HostedRequest, is_hosted};
pub use run::FakeToolRun;
pub(super) use store::{Origin, Store};

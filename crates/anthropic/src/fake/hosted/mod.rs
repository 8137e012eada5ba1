//! What the fake keeps for hosts: skills and their versions, files, containers. All of it in memory; it ends with the fake.

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

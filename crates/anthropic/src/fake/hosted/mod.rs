//! What the fake keeps for hosts: skills and their versions, files, containers. All of it in memory; it ends with the fake.

mod containers;
mod form;
mod routes;
mod run;
mod store;
mod upload;
mod wire;
mod zip;

pub(super) use containers::{Asked, Hosting};
pub(super) use routes::{Hosted, is_hosted};
pub use run::HostedRun;
pub(super) use run::{Produced, named};
pub(super) use store::{Origin, Store};

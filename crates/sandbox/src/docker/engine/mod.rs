//! The container engine: its address, its API, and what it can do.

pub(super) mod address;
pub(super) mod capabilities;
pub(super) mod container_engine;
pub(super) mod drop_budget;
pub(super) mod engine_client;
pub(super) mod engine_info;
pub(super) mod error_map;
#[cfg(test)]
pub(super) mod fake_engine;
pub(super) mod libpod;
pub(super) mod list_containers;
pub(super) mod transport;

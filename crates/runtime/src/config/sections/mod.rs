//! The sections of the configuration file.

pub(super) mod artifacts;
pub(super) mod compaction;
pub(super) mod mcp;
pub(super) mod models;
pub(super) mod pool;
pub(super) mod sandbox;
pub(super) mod serve;
pub(super) mod skills;

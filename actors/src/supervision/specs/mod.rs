//! How children are described: specifications, policies, and how an actor ended.

pub(super) mod backoff;
pub(super) mod exit;
pub(super) mod id;
pub(super) mod partitions;
pub(super) mod policy;
pub(super) mod spec;
pub(super) mod supervisor_spec;

//! The calls that wait for the writer, in an order that is fair to tenants.

pub(super) mod call_queue;
pub(super) mod fair_queue;
pub(super) mod job;

//! The output of `conjure run`.

pub(super) mod printer;
pub(super) mod progress;
pub(super) mod run_result;
pub(super) mod turn_summary;
pub(super) mod usage_report;

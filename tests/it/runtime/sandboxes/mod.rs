//! Sandboxes: warm ones, replacements of lost ones, and those without a session.

pub(crate) mod pools;
mod replaced;
mod warm_sandboxes;
mod workbenches;

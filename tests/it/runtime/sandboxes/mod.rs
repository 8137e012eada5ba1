//! Sandboxes: made before they are needed, replaced when they are lost, and those of no session.

pub(crate) mod pools;
mod replaced;
mod warm_sandboxes;
mod workbenches;

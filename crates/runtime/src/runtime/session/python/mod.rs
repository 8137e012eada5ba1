//! The Python packages of a session's sandboxes.

pub(super) mod packaged_sources;
pub(super) mod python_packages;
pub(crate) mod python_requirement;

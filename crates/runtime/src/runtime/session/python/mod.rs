//! The packages of Python that a session's environment asks for.

pub(super) mod packaged_sources;
pub(super) mod python_packages;
pub(crate) mod python_requirement;

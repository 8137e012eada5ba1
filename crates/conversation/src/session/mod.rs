//! The parts of a session besides its messages: settings, skills, artifacts, files, the queue.

pub(crate) mod artifact;
pub(crate) mod grant;
pub(crate) mod hosted;
pub(crate) mod pinned_skill;
pub(crate) mod profile_change;
pub(crate) mod queue;
pub(crate) mod session_file;
pub(crate) mod session_overview;
pub(crate) mod session_profile;
pub(crate) mod session_view;

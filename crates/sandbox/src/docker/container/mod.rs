//! One container: its plan, its start, its guest's stream, its end.

pub(super) mod attach;
pub(super) mod container_handle;
pub(super) mod container_plan;
pub(super) mod container_spec;
pub(super) mod container_start;
pub(super) mod container_tracker;
pub(super) mod container_user;
pub(super) mod guard;
pub(super) mod guest_stream;
pub(super) mod init_process;
pub(super) mod owner_labels;
pub(super) mod seccomp_profile;

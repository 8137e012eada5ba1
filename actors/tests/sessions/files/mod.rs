//! The files of sessions: artifacts, what turns make, and workspaces away from the host.

mod artifacts;
mod copy_out;
mod pinning;
mod producing;
mod uploading;

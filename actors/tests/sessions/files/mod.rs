//! The files of sessions: artifacts, what turns make, and workspaces away from the host.

mod artifacts;
mod pinning;
mod producing;
mod travelling;
mod uploading;

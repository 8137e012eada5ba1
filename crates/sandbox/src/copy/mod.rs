//! Copies content into and out of a sandbox that shares no directories with the host, through the guest protocol.

mod blocking_stream;
mod content_archive;
mod copier;
mod host_scan;
mod host_writer;
mod space_budget;
mod tree_pager;
mod workspace;

pub use copier::CopyPlan;
pub(crate) use copier::GuestCopier;

//! Directories of the host that belong to sandboxes: their creation, their content and their removal.

mod content_dirs;
mod dirs_state;
mod disk_image;
#[cfg(feature = "jail")]
mod disk_use;
mod registry;
mod remove_tree;
mod sandbox_dir;
#[cfg(feature = "jail")]
mod workspace_swap;

pub use content_dirs::ContentDirs;
#[cfg(feature = "jail")]
pub(crate) use disk_image::{mount_limited, remount};
#[cfg(feature = "jail")]
pub(crate) use disk_use::is_measurable;
#[cfg(feature = "docker")]
pub(crate) use registry::SandboxDirsRef;
pub use registry::{DirSweepReport, SandboxDirs};
pub(crate) use remove_tree::remove_beneath;
pub use remove_tree::{dir_id, remove_tree};
pub use sandbox_dir::SandboxDir;
pub(crate) use sandbox_dir::{DirPurpose, kind_of};
#[cfg(feature = "jail")]
pub(crate) use workspace_swap::{SessionFiles, finish_swap, swap_workspace};

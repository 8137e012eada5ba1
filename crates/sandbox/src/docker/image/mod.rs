//! The image that sandboxes run in (specification 9.3): built by the engine from `docker/Dockerfile`, or, where there is
//! no registry to have a base from, of Debian packages on this machine.
//!
//! Both ways read the same lists: of the distribution's packages, and of wheels for what no distribution has, checked
//! against their digests. [`build_image`] takes the way that fits.
//!
//! State: a temporary folder on this machine, and in the engine containers and images that bear the build's number. All of
//! it goes with the build, however it ends; the image appears under its name when it is whole. When the host is killed, the
//! programs that it started end by themselves, and clear away what is theirs, as nobody takes what they write.

mod build;
mod build_client;
mod build_dir;
mod build_log;
mod build_process;
mod debian_release;
mod dockerfile;
mod error;
mod libpod_import;
mod mmdebstrap;
mod name;
mod options;
mod package_lists;
mod progress;
mod provisional_tag;
#[cfg(test)]
mod recipe;
mod wheels;

pub use build::{BuiltImage, build_image};
pub use error::{ImageError, ImageErrorKind};
pub use name::ImageName;
pub use options::{ImageOptions, ImagePackages, ImageSource};
pub use progress::ImageProgress;

//! The image for sandboxes (specification 9.3). The engine builds it from `docker/Dockerfile`; without a registry for
//! the base, it is built from Debian packages on this machine.
//!
//! Both methods read the same lists: packages of the distribution, and wheels with digests for what it does not
//! package. [`build_image`] selects the method.
//!
//! State: a temporary directory on this machine, and containers and images with the build's number as a label in the
//! engine. All of it ends with the build. The image gets its name when it is complete. If this process is killed, the
//! programs that it started end by themselves and clean up, because their output pipe is closed.

mod build;
mod build_client;
mod build_dir;
mod build_log;
mod build_process;
mod error;
mod libpod_import;
mod name;
mod options;
mod progress;
mod provisional_tag;
mod sources;

pub use build::{BuiltImage, build_image};
pub use error::{ImageError, ImageErrorKind};
pub use name::ImageName;
pub use options::{ImageOptions, ImagePackages, ImageSource};
pub use progress::ImageProgress;

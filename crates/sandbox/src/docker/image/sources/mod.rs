//! What an image is made from: Debian packages, wheels, the Dockerfile.

pub(super) mod debian_release;
pub(super) mod dockerfile;
pub(super) mod mmdebstrap;
pub(super) mod package_lists;
#[cfg(test)]
pub(super) mod recipe;
pub(super) mod wheels;

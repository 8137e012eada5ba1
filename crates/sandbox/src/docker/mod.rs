//! Containers, by the API of Docker Engine or Podman: the one folder that speaks to an engine.

mod ability;
mod address;
mod archive;
mod attach;
mod connector;
mod engine;
mod facts;
mod failure;
mod first_process;
mod guard;
mod held;
mod image;
mod image_facts;
mod image_volumes;
mod labels;
mod last;
mod listing;
mod meant;
mod meeting;
mod options;
mod people;
mod podman;
mod premises;
mod prepare;
#[cfg(test)]
mod scripted;
mod seccomp;
mod shared;
mod spec;
mod stock;
mod sweep;
mod transport;

pub use address::EngineAddress;
pub use connector::Docker;
pub use facts::{DockerEnvironment, EngineKind};
pub use image::{
    BuiltImage, ImageError, ImageErrorKind, ImageName, ImageOptions, ImagePackages, ImageProgress,
    ImageSource, build_image,
};
pub use options::{DockerOptions, Volume};
pub use seccomp::profile as seccomp_profile;
pub use shared::ContainerEngine;
pub use sweep::SweptContainers;

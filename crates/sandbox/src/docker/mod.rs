//! Containers, through the API of Docker Engine or Podman. Only this directory talks to an engine.

mod connector;
mod container;
mod engine;
mod image;
mod image_command;
mod image_info;
mod image_volumes;
mod mount_check;
mod options;
mod pending_removal;
mod runtime_files;
mod tar;
mod volume_container;

pub use connector::Docker;
pub use container::seccomp_profile::profile as seccomp_profile;
pub use engine::address::EngineAddress;
pub use engine::container_engine::{ContainerEngine, ContainerSweepReport};
pub use engine::engine_info::{DockerEnvironment, EngineKind};
pub use image::{
    BuiltImage, ImageError, ImageErrorKind, ImageName, ImageOptions, ImagePackages, ImageProgress,
    ImageSource, build_image,
};
pub use image_command::ImageCommand;
pub use options::{DockerOptions, HostMount};

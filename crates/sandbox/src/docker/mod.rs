//! Containers, through the API of Docker Engine or Podman. Only this directory talks to an engine.

mod address;
mod attach;
mod capabilities;
mod connector;
mod container_engine;
mod container_handle;
mod container_plan;
mod container_spec;
mod container_start;
mod container_tracker;
mod container_user;
mod drop_budget;
mod engine_client;
mod engine_info;
mod error_map;
#[cfg(test)]
mod fake_engine;
mod guard;
mod guest_stream;
mod image;
mod image_command;
mod image_info;
mod image_volumes;
mod init_process;
mod libpod;
mod list_containers;
mod mount_check;
mod options;
mod owner_labels;
mod pending_removal;
mod runtime_files;
mod seccomp;
mod tar;
mod transport;
mod volume_container;

pub use address::EngineAddress;
pub use connector::Docker;
pub use container_engine::{ContainerEngine, ContainerSweepReport};
pub use engine_info::{DockerEnvironment, EngineKind};
pub use image::{
    BuiltImage, ImageError, ImageErrorKind, ImageName, ImageOptions, ImagePackages, ImageProgress,
    ImageSource, build_image,
};
pub use image_command::ImageCommand;
pub use options::{DockerOptions, HostMount};
pub use seccomp::profile as seccomp_profile;

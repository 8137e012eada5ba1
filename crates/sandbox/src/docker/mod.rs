//! Containers, by the API of Docker Engine or Podman: the one folder that speaks to an engine.

mod image;

pub use image::{
    BuiltImage, ImageError, ImageErrorKind, ImageName, ImageOptions, ImagePackages, ImageProgress,
    ImageSource, build_image,
};

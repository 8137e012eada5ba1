//! The options of an image build.

use std::ffi::OsString;
use std::path::PathBuf;

use super::name::ImageName;
use crate::docker::engine::address::EngineAddress;

/// What to build, and from which source.
///
/// ```
/// use conjure_sandbox::{ImageOptions, ImagePackages, ImageSource};
///
/// let options = ImageOptions {
///     source: ImageSource::Debian,
///     packages: ImagePackages::Minimal,
///     add: vec!["ffmpeg".to_owned()],
///     ..ImageOptions::new(std::env::vars_os())
/// };
/// assert_eq!(options.name.to_string(), "conjure/sandbox:latest");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageOptions {
    /// The name of the image. If another image has that name, it loses it.
    pub name: ImageName,
    /// The method.
    pub source: ImageSource,
    /// The base. For a Dockerfile, it is an image of the engine or of a registry; the default is `ubuntu:24.04`. For
    /// Debian packages, it is the release, given as its image or by its name; the default is `debian:13`.
    pub base: Option<String>,
    /// The set of packages.
    pub packages: ImagePackages,
    /// Additional packages of the distribution.
    pub add: Vec<String>,
    /// The mirror of the distribution's packages, if it is not the distribution's own. For Debian packages only.
    pub mirror: Option<String>,
    /// Addresses of the engine, in the order of preference; empty: the usual ones.
    pub engine: Vec<EngineAddress>,
    /// The directory for temporary files, about 3 GB for the full set. `None`: the system's.
    pub temporary: Option<PathBuf>,
    /// The environment of programs on this machine: their `PATH`, proxies, and trusted certificates.
    pub environment: Vec<(OsString, OsString)>,
}

impl ImageOptions {
    /// The specification's image (9.3) under its usual name.
    pub fn new(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self {
            name: ImageName::default(),
            source: ImageSource::Fitting,
            base: None,
            packages: ImagePackages::Full,
            add: Vec::new(),
            mirror: None,
            engine: Vec::new(),
            temporary: None,
            environment: environment.into_iter().collect(),
        }
    }
}

/// The method of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ImageSource {
    /// From the Dockerfile if the base image is available; else from Debian packages.
    #[default]
    Fitting,
    /// By the engine, from the Dockerfile.
    Dockerfile,
    /// On this machine, with `mmdebstrap`, without a registry.
    Debian,
}

/// The set of packages in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ImagePackages {
    /// Everything that the specification lists.
    #[default]
    Full,
    /// A shell and Python.
    Minimal,
}

impl ImagePackages {
    /// The name of the package lists.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Minimal => "minimal",
        }
    }
}

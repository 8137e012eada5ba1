//! What a host says about the image that is to be built.

use std::ffi::OsString;
use std::path::PathBuf;

use super::name::ImageName;
use crate::docker::address::EngineAddress;

/// What is to be built, and of what.
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
    /// The name that the image gets, taken from the image that has it.
    pub name: ImageName,
    /// How it is built.
    pub source: ImageSource,
    /// What it begins with. For a Dockerfile an image, of the engine or of a registry: `ubuntu:24.04` by default. For Debian
    /// packages the release, as that image would be called or by its name: `mmdebstrap:13` by default.
    pub base: Option<String>,
    /// What is in it.
    pub packages: ImagePackages,
    /// Further packages of the distribution.
    pub add: Vec<String>,
    /// Where the distribution's packages are fetched, if not where the distribution has them. For Debian packages only.
    pub mirror: Option<String>,
    /// Where to look for the engine, likeliest first; without any, where engines usually listen.
    pub engine: Vec<EngineAddress>,
    /// The folder in which the build has its temporary one, with some 3 GB for the full set. `None`: the system's.
    pub temporary: Option<PathBuf>,
    /// The variables of the programs that do the work on this machine: where they are, which proxy they use, whose
    /// certificates they trust.
    pub environment: Vec<(OsString, OsString)>,
}

impl ImageOptions {
    /// The image that the specification describes (9.3), under its usual name.
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

/// How an image is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ImageSource {
    /// From the Dockerfile, where the base can be had; else of Debian packages.
    #[default]
    Fitting,
    /// By the engine, from the Dockerfile.
    Dockerfile,
    /// On this machine, by `mmdebstrap`, without a registry.
    Debian,
}

/// What is in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ImagePackages {
    /// All that the specification lists.
    #[default]
    Full,
    /// A shell and Python.
    Minimal,
}

impl ImagePackages {
    /// The name of the lists.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Minimal => "minimal",
        }
    }
}

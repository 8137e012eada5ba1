//! The options of `conjure image …`.

use std::str::FromStr as _;
use std::time::Duration;

use clap::ValueEnum;

use crate::cli::args::shared::values::parse_seconds;

const IMAGE_EXAMPLES: &str = "\
Examples:
  conjure image build
  conjure image build --from debian --base debian:12 --add default-jre-headless
  conjure image build --packages minimal --tag my/sandbox:small

Its name and digest are all that goes to standard output. Debian packages need `mmdebstrap` and, for
the full set, `pip` on this machine, and no registry of images.";

#[derive(Debug, clap::Args)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ImageCommand {
    /// Build the image: a shell, Python, Node and the packages that skills use, for the user `sandbox`.
    Build(ImageBuildArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = IMAGE_EXAMPLES)]
pub(crate) struct ImageBuildArgs {
    /// The name of the image.
    #[arg(long, value_name = "NAME:TAG", default_value_t, value_parser = conjure::sandbox::ImageName::from_str)]
    pub(crate) tag: conjure::sandbox::ImageName,
    /// The base: an image for a Dockerfile (`ubuntu:24.04`), a release for Debian packages (`debian:13`).
    #[arg(long, value_name = "BASE")]
    pub(crate) base: Option<String>,
    /// The build method.
    #[arg(long, value_enum, default_value_t, value_name = "WAY")]
    pub(crate) from: ImageFrom,
    /// The set of packages.
    #[arg(long, value_enum, default_value_t, value_name = "SET")]
    pub(crate) packages: PackageSet,
    /// A further package of the distribution; may be repeated.
    #[arg(long, value_name = "PACKAGE")]
    pub(crate) add: Vec<String>,
    /// The mirror of Debian packages, such as `http://deb.debian.org/debian`.
    #[arg(long, value_name = "URL")]
    pub(crate) mirror: Option<String>,
    /// The timeout, in seconds.
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "3600")]
    pub(crate) timeout: Duration,
}

/// The build method of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ImageFrom {
    /// From the Dockerfile if its base is available, else from Debian packages.
    #[default]
    Auto,
    /// By the engine, from the Dockerfile.
    Dockerfile,
    /// On this machine, by mmdebstrap, without a registry.
    Debian,
}

/// The set of packages in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum PackageSet {
    /// Python, Node, and the packages that skills use.
    #[default]
    Full,
    /// A shell and Python.
    Minimal,
}

//! The distribution releases from which an image can be built without a registry.

use crate::docker::image::error::{ImageError, ImageErrorKind};

/// A release of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    /// Its name in the distribution's archive.
    pub(crate) suite: &'static str,
    /// The version of its Python, which selects wheels.
    pub(crate) python: &'static str,
    /// The components of the archive with the needed packages.
    pub(crate) components: &'static str,
    /// Names of the release: tags of the distribution's image, and the release's own name.
    names: &'static [&'static str],
    distribution: &'static str,
    /// The package with the keys that sign it.
    pub(crate) keyring: &'static str,
}

const RELEASES: [Release; 3] = [
    Release {
        suite: "trixie",
        python: "3.13",
        components: "main",
        names: &["13", "trixie", "stable", "latest"],
        distribution: "debian",
        keyring: "debian-archive-keyring",
    },
    Release {
        suite: "bookworm",
        python: "3.11",
        components: "main",
        names: &["12", "bookworm", "oldstable"],
        distribution: "debian",
        keyring: "debian-archive-keyring",
    },
    Release {
        suite: "noble",
        python: "3.12",
        components: "main,universe",
        names: &["24.04", "noble"],
        distribution: "ubuntu",
        keyring: "ubuntu-keyring",
    },
];

impl Release {
    /// The release of this base; the default release without a base.
    ///
    /// # Errors
    /// `BadRequest` for an unknown base; the error lists the known ones.
    pub(crate) fn for_base(base: Option<&str>) -> Result<Self, ImageError> {
        let [default, ..] = RELEASES;
        let Some(base) = base else { return Ok(default) };
        let short = base.trim_start_matches("docker.io/").trim_start_matches("library/");
        let (distribution, tag) = match short.split_once(':') {
            Some((distribution, tag)) => (Some(distribution), tag),
            None if ["debian", "ubuntu"].contains(&short) => (Some(short), "latest"),
            None => (None, short),
        };
        let tag = tag.trim_end_matches("-slim");
        let is_it = |release: &&Self| {
            release.names.contains(&tag)
                && distribution.map_or(tag == release.suite, |name| name == release.distribution)
        };
        RELEASES.iter().find(is_it).copied().ok_or_else(|| {
            let known =
                RELEASES.map(|release| format!("`{}:{}`", release.distribution, release.names[0])).join(", ");
            ImageError::new(
                ImageErrorKind::BadRequest,
                format!(
                    "`{}` is no release that an image can be made of without a registry",
                    base.escape_debug()
                ),
            )
            .with_hint(format!("known are {known}; of any other base the Dockerfile makes one"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_the_names_of_its_image_and_its_own() {
        for (base, suite) in [
            (None, "trixie"),
            (Some("debian"), "trixie"),
            (Some("debian:13"), "trixie"),
            (Some("debian:bookworm-slim"), "bookworm"),
            (Some("docker.io/library/debian:12"), "bookworm"),
            (Some("ubuntu:24.04"), "noble"),
            (Some("noble"), "noble"),
        ] {
            assert_eq!(Release::for_base(base).unwrap().suite, suite, "{base:?}");
        }
        for base in ["", "alpine", "ubuntu:12", "ubuntu", "12", "latest", "debian:noble", "--help"] {
            let error = Release::for_base(Some(base)).unwrap_err();
            assert_eq!(error.kind(), ImageErrorKind::BadRequest, "{base}");
            assert!(error.hint().unwrap().contains("`debian:13`, `debian:12`, `ubuntu:24.04`"));
        }
    }
}

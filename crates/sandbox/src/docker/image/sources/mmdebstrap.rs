//! Builds a system from the distribution's packages on this machine, with `mmdebstrap`, as a tar archive.

use std::ffi::OsString;
use std::sync::Arc;

use super::debian_release::Release;
use super::package_lists;
use super::wheels;
use crate::docker::image::build_dir::BuildDir;
use crate::docker::image::build_process::{BuildProcess, HostProgram};
use crate::docker::image::error::ImageError;
use crate::docker::image::options::ImageOptions;

/// The settings of the image, in addition to its files, as instructions of a Dockerfile. They are the same as in
/// `docker/Dockerfile`.
pub(crate) const CHANGES: [&str; 5] = [
    "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "ENV PYTHONUNBUFFERED=1 NODE_ENV=production",
    "USER sandbox",
    "WORKDIR /workspace",
    "CMD [\"bash\"]",
];

/// The command that runs in the system after its packages are installed.
const FINISH: &str = "set -eu; sh \"$CONJURE_SITE/setup.sh\" \"$1\"; \
     if [ -d \"$CONJURE_SITE/python\" ]; then \
         cp -R \"$CONJURE_SITE/python/.\" \"$1/usr/lib/python3/dist-packages/\"; \
         chown -R 0:0 \"$1/usr/lib/python3/dist-packages\"; \
     fi";

/// Documentation, which is not needed and takes a tenth of the space. Licences stay.
const NOT_UNPACKED: [&str; 4] = [
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
];

/// Finds `mmdebstrap`.
pub(crate) fn mmdebstrap(options: &ImageOptions) -> Result<HostProgram, ImageError> {
    HostProgram::find("mmdebstrap", "mmdebstrap", &options.environment)
}

/// Starts `mmdebstrap`, whose output is the archive. Wheels must have been downloaded before.
pub(crate) fn start(
    build_dir: &Arc<BuildDir>,
    mmdebstrap: &HostProgram,
    options: &ImageOptions,
    release: &Release,
) -> Result<BuildProcess, ImageError> {
    build_dir.write("setup.sh", package_lists::SETUP)?;
    debug_assert!(FINISH.contains(wheels::DIR));
    BuildProcess::start(build_dir, mmdebstrap, &arguments(options, release), &options.environment)
}

fn arguments(options: &ImageOptions, release: &Release) -> Vec<OsString> {
    let mut arguments = vec![
        // Includes apt, for images that are built on this one.
        "--variant=apt".to_owned(),
        "--format=tar".to_owned(),
        format!("--components={}", release.components),
        "--aptopt=APT::Install-Recommends \"false\"".to_owned(),
        "--aptopt=Acquire::Retries \"3\"".to_owned(),
        // No flush is needed: if the machine crashes, the directory is discarded.
        "--dpkgopt=force-unsafe-io".to_owned(),
        format!("--include={}", package_lists::all_packages(options).join(",")),
        format!("--customize-hook={FINISH}"),
    ];
    arguments.extend(NOT_UNPACKED.map(|option| format!("--dpkgopt={option}")));
    arguments.extend([release.suite.to_owned(), "-".to_owned()]);
    arguments.extend(options.mirror.clone());
    arguments.into_iter().map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::image::options::ImagePackages;

    #[test]
    fn the_release_its_packages_and_a_mirror_are_asked_for() {
        let mut options = ImageOptions::new([]);
        options.packages = ImagePackages::Minimal;
        options.add = vec!["jq".to_owned()];
        options.mirror = Some("http://mirror.example/debian".to_owned());
        let release = Release::for_base(Some("debian:12")).unwrap();
        let arguments = arguments(&options, &release);
        assert!(arguments.contains(&"--include=bash,ca-certificates,python3,jq".into()), "{arguments:?}");
        assert!(arguments.ends_with(&["bookworm".into(), "-".into(), "http://mirror.example/debian".into()]));
    }

    #[test]
    fn the_image_says_the_same_as_that_of_the_dockerfile() {
        for change in &CHANGES[1..] {
            assert!(package_lists::DOCKERFILE.lines().any(|line| line == *change), "{change}");
        }
    }
}

//! Downloads wheels for packages that the distribution does not have. Uses this machine's `pip`, for the Python
//! version of the image.

use std::ffi::OsString;
use std::sync::Arc;

use super::debian_release::Release;
use super::package_lists;
use crate::docker::image::build_dir::BuildDir;
use crate::docker::image::build_process::{BuildProcess, HostProgram};
use crate::docker::image::error::ImageError;
use crate::docker::image::options::ImageOptions;
use crate::docker::image::progress::ProgressReporter;

/// The directory into which they are unpacked.
pub(crate) const DIR: &str = "python";

/// Wheel platforms that the C library of every release supports.
const PLATFORMS: [&str; 3] = ["manylinux2014", "manylinux_2_17", "manylinux_2_28"];

/// Downloads the wheels of the list, if any, and checks their digests.
pub(crate) async fn fetch(
    build_dir: &Arc<BuildDir>,
    options: &ImageOptions,
    release: &Release,
    progress: &ProgressReporter<'_>,
) -> Result<(), ImageError> {
    let list = package_lists::wheels(options.packages);
    if package_lists::is_empty(list) {
        return Ok(());
    }
    let python = HostProgram::find("python3", "python3-pip", &options.environment)?;
    progress.step(format!("fetching what the distribution lacks, for Python {}", release.python));
    build_dir.write("wheels.txt", list)?;
    let mut arguments: Vec<OsString> = [
        "-m",
        "pip",
        "install",
        "--target",
        DIR,
        "--require-hashes",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-compile",
        "--progress-bar",
        "off",
        "--no-input",
        "--disable-pip-version-check",
        "--implementation",
        "cp",
        "--python-version",
        release.python,
        "--requirement",
        "wheels.txt",
    ]
    .map(OsString::from)
    .to_vec();
    for platform in PLATFORMS {
        arguments.extend(["--platform".into(), format!("{platform}_{}", std::env::consts::ARCH).into()]);
    }
    let mut process = BuildProcess::start(build_dir, &python, &arguments, &options.environment)?;
    let output = process.take_output();
    let (finished, ()) = tokio::join!(process.finish(progress), read(output, progress));
    finished?;
    // These programs contain the path of this machine's Python, so they are removed.
    match std::fs::remove_dir_all(build_dir.path().join(DIR).join("bin")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ImageError::io("remove the programs of the wheels", &error))
        }
        _ => Ok(()),
    }
}

/// Reports what `pip` writes to standard output.
async fn read(output: Option<tokio::process::ChildStdout>, progress: &ProgressReporter<'_>) {
    use tokio::io::AsyncBufReadExt as _;
    let Some(output) = output else { return };
    let mut lines = tokio::io::BufReader::new(output).lines();
    // Output that is not text ends the reports. The program's exit status shows its result.
    while let Ok(Some(line)) = lines.next_line().await {
        progress.line(&line);
    }
}

//! What no distribution packages: wheels, fetched by this machine's `pip` for the image's Python.

use std::ffi::OsString;
use std::sync::Arc;

use super::error::ImageError;
use super::lists;
use super::options::ImageOptions;
use super::progress::News;
use super::release::Release;
use super::site::Site;
use super::worker::{Program, Worker};

/// The folder of the site that they are unpacked to.
pub(super) const FOLDER: &str = "python";

/// Of the C library that every release has.
const PLATFORMS: [&str; 3] = ["manylinux2014", "manylinux_2_17", "manylinux_2_28"];

/// Fetches the wheels of the list, if there are any, each with a digest that the list names.
pub(super) async fn fetch(
    site: &Arc<Site>,
    options: &ImageOptions,
    release: &Release,
    news: &News<'_>,
) -> Result<(), ImageError> {
    let list = lists::wheels(options.packages);
    if lists::is_empty(list) {
        return Ok(());
    }
    let python = Program::find("python3", "python3-pip", &options.environment)?;
    news.step(format!("fetching what the distribution lacks, for Python {}", release.python));
    site.write("wheels.txt", list)?;
    let mut arguments: Vec<OsString> = [
        "-m",
        "pip",
        "install",
        "--target",
        FOLDER,
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
    let mut worker = Worker::start(site, &python, &arguments, &options.environment)?;
    let output = worker.take_output();
    let (finished, ()) = tokio::join!(worker.finish(news), read(output, news));
    finished?;
    // Programs with the path of this machine's Python in them.
    match std::fs::remove_dir_all(site.path().join(FOLDER).join("bin")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ImageError::io("remove what wheels brought of programs", &error))
        }
        _ => Ok(()),
    }
}

/// Tells what it writes to standard output too.
async fn read(output: Option<tokio::process::ChildStdout>, news: &News<'_>) {
    use tokio::io::AsyncBufReadExt as _;
    let Some(output) = output else { return };
    let mut lines = tokio::io::BufReader::new(output).lines();
    // Something that is no text ends the telling; the program's end is told by its status.
    while let Ok(Some(line)) = lines.next_line().await {
        news.line(&line);
    }
}

//! One build of an image, from the request to the image, with the choice of the method.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use conjure_base::{Clock as _, Deadline, SystemClock};
use futures_util::stream;
use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStdout;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::build_client::{BuildClient, LABEL};
use super::build_dir::BuildDir;
use super::build_process::BuildProcess;
use super::error::{ImageError, ImageErrorKind};
use super::name::ImageName;
use super::options::{ImageOptions, ImageSource};
use super::progress::{ImageProgress, ProgressReporter};
use crate::docker::image::sources::debian_release::Release;
use crate::docker::image::sources::dockerfile;
use crate::docker::image::sources::mmdebstrap;
use crate::docker::image::sources::package_lists;
use crate::docker::image::sources::wheels;

/// The size of the chunks in which the archive is read, in bytes.
const PIECE: usize = 256 * 1024;

/// The maximum number of chunks that wait for the engine.
const PIECES: usize = 4;

/// Progress of the transfer to the engine is reported after this many bytes.
const REPORT_EVERY: u64 = 64 * 1024 * 1024;

/// A built image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltImage {
    /// Its name.
    pub name: ImageName,
    /// Its digest, which the engine also accepts as a name: `sha256:…`.
    pub id: String,
    /// Its size in bytes, including layers that it shares with other images.
    pub size: u64,
    /// How it was built: never [`ImageSource::Fitting`].
    pub source: ImageSource,
}

/// Builds an image (specification 5.8, `build_image`) and reports progress. The engine has the image under its name
/// when it is complete. An earlier image of Conjure with that name is removed unless it is used.
///
/// However the build ends, nothing but the image remains. After a cancellation by the token, the function returns
/// when the cleanup is complete. If the future is dropped, threads clean up in the background.
///
/// # Errors
/// By [`ImageErrorKind`], with hints.
pub async fn build_image(
    options: &ImageOptions,
    deadline: Deadline,
    cancelled: &CancellationToken,
    listener: &mut (dyn FnMut(ImageProgress) + Send),
) -> Result<BuiltImage, ImageError> {
    package_lists::check(options)?;
    check_mirror(options)?;
    if options.source == ImageSource::Debian {
        Release::for_base(options.base.as_deref())?;
    }
    let progress = ProgressReporter::to(listener);
    let build_dir = BuildDir::make(options.temporary.as_deref())?;
    let ended = tokio::select! {
        built = build(&build_dir, options, deadline, &progress) => built,
        () = cancelled.cancelled() => Err(ImageError::new(ImageErrorKind::Cancelled, "the build was cancelled")),
        () = SystemClock.sleep_until(deadline) => {
            Err(ImageError::new(ImageErrorKind::TimedOut, "the time for the build was up"))
        }
    };
    build_dir.wait_cleanup().await;
    ended
}

async fn build(
    build_dir: &Arc<BuildDir>,
    options: &ImageOptions,
    deadline: Deadline,
    progress: &ProgressReporter<'_>,
) -> Result<BuiltImage, ImageError> {
    let engine = BuildClient::find(&options.engine, deadline).await?;
    let name = options.name.to_string();
    let before = engine.image(&name).await?;
    let source = match options.source {
        ImageSource::Fitting => select_method(&engine, options, progress).await?,
        chosen => chosen,
    };
    if source == ImageSource::Debian {
        of_debian(build_dir, &engine, options, progress).await?;
    } else {
        if let Some(mirror) = &options.mirror {
            progress.step(format!(
                "the mirror `{mirror}` is for Debian packages alone; the Dockerfile does not use it"
            ));
        }
        dockerfile::ensure_base(&engine, dockerfile::base(options), progress).await?;
        dockerfile::build(build_dir, options, deadline, progress).await?;
    }
    let image = engine.image(&name).await?.ok_or_else(|| {
        ImageError::new(ImageErrorKind::Refused, format!("the engine took `{name}` and does not have it"))
    })?;
    let id = image.id.unwrap_or_default();
    let ours = before.filter(|before| {
        let labels = before.config.as_ref().and_then(|config| config.labels.as_ref());
        labels.is_some_and(|labels| labels.contains_key(LABEL))
    });
    if let Some(old) = ours.and_then(|before| before.id).filter(|old| *old != id) {
        engine.remove_unnamed_image(&old).await;
    }
    let size = image.size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
    Ok(BuiltImage { name: options.name.clone(), id, size, source })
}

/// Selects the method. It is the Dockerfile, if the engine has the base image or can pull it. Otherwise it is Debian
/// packages, if this machine can build from them.
async fn select_method(
    engine: &BuildClient,
    options: &ImageOptions,
    progress: &ProgressReporter<'_>,
) -> Result<ImageSource, ImageError> {
    let no_base = match dockerfile::ensure_base(engine, dockerfile::base(options), progress).await {
        Ok(()) => return Ok(ImageSource::Dockerfile),
        Err(error) if error.kind() == ImageErrorKind::BaseNotFound => error,
        Err(error) => return Err(error),
    };
    match Release::for_base(options.base.as_deref()).and_then(|_| mmdebstrap::mmdebstrap(options)) {
        Ok(_) => {
            progress.step(format!("{no_base}; so it is made of Debian packages"));
            Ok(ImageSource::Debian)
        }
        Err(error) => {
            let hint = error.hint().unwrap_or_default().to_owned();
            let message = format!("{no_base}; and it cannot be made of Debian packages: {error}");
            Err(ImageError::new(no_base.kind(), message).with_hint(hint))
        }
    }
}

/// Streams the system from `mmdebstrap` to the engine while it is packed. So the archive is never stored on this
/// machine's disk.
async fn of_debian(
    build_dir: &Arc<BuildDir>,
    engine: &BuildClient,
    options: &ImageOptions,
    progress: &ProgressReporter<'_>,
) -> Result<(), ImageError> {
    let release = Release::for_base(options.base.as_deref())?;
    check_architecture(engine)?;
    let mmdebstrap = mmdebstrap::mmdebstrap(options)?;
    wheels::fetch(build_dir, options, &release, progress).await?;
    progress.step(format!("making a system of the packages of `{}`", release.suite));
    let process = mmdebstrap::start(build_dir, &mmdebstrap, options, &release)?;
    let (sender, receiver) = mpsc::channel(PIECES);
    let label = format!("LABEL {LABEL}={}", build_dir.number());
    let changes = mmdebstrap::CHANGES.map(str::to_owned).into_iter().chain([label]).collect();
    let mut import = std::pin::pin!(engine.import(&options.name, changes, archive(receiver)));
    let mut fill = std::pin::pin!(fill(process, sender, progress));
    tokio::select! {
        // The engine has refused the archive early, or has seen its end before the program ended.
        imported = &mut import => {
            imported?;
            fill.await
        }
        filled = &mut fill => {
            filled?;
            progress.step("the engine stores the image");
            import.await
        }
    }
}

/// A chunk of the archive, or its end.
enum ArchiveChunk {
    Bytes(Bytes),
    End,
}

/// The archive as a stream for the engine. If the program fails or the build is aborted, the stream ends with an
/// error. So the engine does not mistake the incomplete archive for a complete one.
fn archive(
    pieces: mpsc::Receiver<ArchiveChunk>,
) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::unfold(Some(pieces), |pieces| async {
        let mut pieces = pieces?;
        match pieces.recv().await {
            Some(ArchiveChunk::Bytes(bytes)) => Some((Ok(bytes), Some(pieces))),
            Some(ArchiveChunk::End) => None,
            None => Some((Err(io::ErrorKind::UnexpectedEof.into()), None)),
        }
    })
}

async fn fill(
    mut process: BuildProcess,
    sender: mpsc::Sender<ArchiveChunk>,
    progress: &ProgressReporter<'_>,
) -> Result<(), ImageError> {
    let output = process.take_output();
    let (copied, finished) = tokio::join!(copy(output, &sender, progress), process.finish(progress));
    finished?;
    copied?;
    // If the engine does not read any more, the engine's response tells why.
    let _ = sender.send(ArchiveChunk::End).await;
    Ok(())
}

async fn copy(
    output: Option<ChildStdout>,
    sender: &mpsc::Sender<ArchiveChunk>,
    progress: &ProgressReporter<'_>,
) -> Result<(), ImageError> {
    let Some(mut output) = output else { return Ok(()) };
    let (mut sent, mut reported) = (0_u64, 0);
    loop {
        let mut piece = bytes::BytesMut::with_capacity(PIECE);
        let read = output.read_buf(&mut piece).await;
        let read = read.map_err(|error| ImageError::io("read the archive", &error))?;
        if read == 0 {
            progress.sent(sent);
            return Ok(());
        }
        if sender.send(ArchiveChunk::Bytes(piece.freeze())).await.is_err() {
            return Ok(());
        }
        sent += read as u64;
        if sent - reported >= REPORT_EVERY {
            reported = sent;
            progress.sent(sent);
        }
    }
}

/// Refuses an engine with another processor architecture, because the system is built for this machine's.
fn check_architecture(engine: &BuildClient) -> Result<(), ImageError> {
    let here = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let there = engine.architecture.as_str();
    if there.is_empty() || there == here || there == std::env::consts::ARCH {
        return Ok(());
    }
    let message = format!("the engine's processor is `{there}` and this machine's `{here}`");
    Err(ImageError::new(ImageErrorKind::BadRequest, message)
        .with_hint("build from the Dockerfile, or on a machine like the engine's"))
}

/// Checks that a mirror is a URL, and not an option of a program or an additional line.
fn check_mirror(options: &ImageOptions) -> Result<(), ImageError> {
    let is_address = |text: &str| {
        ["http://", "https://", "file:///", "copy:///"].iter().any(|scheme| text.starts_with(scheme))
            && !text.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    match options.mirror.as_deref().filter(|mirror| !is_address(mirror)) {
        None => Ok(()),
        Some(mirror) => Err(ImageError::new(
            ImageErrorKind::BadRequest,
            format!("`{}` is no address of a mirror", mirror.escape_debug()),
        )
        .with_hint("it is like `http://deb.debian.org/debian`")),
    }
}

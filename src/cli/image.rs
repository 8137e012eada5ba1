//! `conjure image build`: builds the image of containers, with progress.
//!
//! A signal cancels the build, which then cleans up. A second signal does not wait for that.

use std::sync::Arc;

use conjure::sandbox::{
    ImageErrorKind, ImageOptions, ImagePackages, ImageProgress, ImageSource, build_image,
};
use conjure::{Clock as _, Config, ProcessEnv, Settings, SystemClock};
use tokio_util::sync::CancellationToken;

use crate::cli::args::{ImageBuildArgs, ImageFrom, PackageSet};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::signals::Signals;
use crate::cli::terminal::{Style, Terminal, printable};

/// The maximum length of a line, in characters.
const MAX_LINE_CHARS: usize = 160;

/// A megabyte, as container engines count it.
const MEGABYTE: u64 = 1_000_000;

/// Builds the image.
pub(crate) async fn build(
    args: ImageBuildArgs,
    environment: ProcessEnv,
    terminal: Arc<Terminal>,
) -> Result<ExitStatus, CliError> {
    let (environment, terminal) = (&environment, &terminal);
    let mut signals = Signals::catch()?;
    let deadline = SystemClock.deadline(args.timeout);
    let options = options(args, environment)?;
    let cancelled = CancellationToken::new();
    let mut listener = |news| show(&news, terminal);
    let mut build = std::pin::pin!(build_image(&options, deadline, &cancelled, &mut listener));
    let (ended, signal) = tokio::select! {
        ended = &mut build => (ended, None),
        exit = signals.next() => {
            terminal.note("interrupted: clearing up");
            cancelled.cancel();
            let ended = tokio::select! {
                ended = build => ended,
                _ = signals.next() => return Ok(exit),
            };
            (ended, Some(exit))
        }
    };
    match (ended, signal) {
        (Ok(image), _) => {
            terminal.note(&format!("it takes {} MB", image.size / MEGABYTE));
            terminal.output(&format!("{} {}", image.name, image.id));
            Ok(ExitStatus::Success)
        }
        (Err(error), Some(exit)) if error.kind() == ImageErrorKind::Cancelled => Ok(exit),
        (Err(error), _) => Err(error.into()),
    }
}

fn options(args: ImageBuildArgs, environment: &ProcessEnv) -> Result<ImageOptions, CliError> {
    let config =
        Config::from_layers(Settings::default(), environment, Config::default_file(environment).as_deref())?;
    Ok(ImageOptions {
        name: args.tag,
        source: match args.from {
            ImageFrom::Auto => ImageSource::Fitting,
            ImageFrom::Dockerfile => ImageSource::Dockerfile,
            ImageFrom::Debian => ImageSource::Debian,
        },
        base: args.base,
        packages: match args.packages {
            PackageSet::Full => ImagePackages::Full,
            PackageSet::Minimal => ImagePackages::Minimal,
        },
        add: args.add,
        mirror: args.mirror,
        // The engine that containers will use.
        engine: config.docker()?.engine,
        ..ImageOptions::new(environment.build_env())
    })
}

fn show(news: &ImageProgress, terminal: &Terminal) {
    match news {
        ImageProgress::Step(text) => terminal.styled(Style::Good, &printable(text)),
        ImageProgress::Line(text) => {
            let line: String = printable(text).chars().take(MAX_LINE_CHARS).collect();
            terminal.styled(Style::Dim, &format!("  {line}"));
        }
        ImageProgress::Sent(bytes) => {
            terminal.styled(Style::Dim, &format!("  {} MB have gone to the engine", bytes / MEGABYTE));
        }
        // A progress kind of a later version.
        _ => {}
    }
}

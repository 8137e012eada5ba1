//! Starts the guest in its private directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::context_path::unavailable;
use super::guest_binary;
use super::marked_temp_dir::MarkedTempDir;
use super::process::GuestProcess;
#[cfg(feature = "jail")]
use crate::connector::SandboxGuard as _;
use crate::error::SandboxError;
#[cfg(feature = "jail")]
use crate::host_dirs::SandboxDir;

/// A directory for files of one sandbox that its commands must not see.
#[derive(Debug)]
pub(crate) struct PrivateDir {
    path: PathBuf,
    output: PathBuf,
    /// Removed when this is dropped. `None`: the owner of the sandbox directory removes it.
    temp_dir: Option<MarkedTempDir>,
}

impl PrivateDir {
    /// Creates the directory. Blocks.
    pub(crate) fn make() -> Result<Self, SandboxError> {
        let private = |error| unavailable("no private directory can be made (TMPDIR names where)", error);
        let (temp_dir, path) = MarkedTempDir::make().map_err(private)?;
        let output = path.join("output");
        fs::create_dir(&output).map_err(private)?;
        Ok(Self { path, output, temp_dir: Some(temp_dir) })
    }

    /// The path for content directories, which do not exist yet.
    pub(crate) fn content_dirs(&self) -> PathBuf {
        self.path.join("shelves")
    }

    /// Uses the directory of a sandbox, which its owner removes.
    #[cfg(feature = "jail")]
    pub(crate) fn for_sandbox_dir(dir: &SandboxDir) -> Self {
        Self { path: dir.path().to_owned(), output: dir.output(), temp_dir: None }
    }

    /// The directory for the complete text of cut output. It is a real path, without links.
    pub(crate) fn output(&self) -> &Path {
        &self.output
    }
}

/// A started guest before the handshake.
#[derive(Debug)]
pub(crate) struct SpawnedGuest {
    pub(crate) reader: ChildStdout,
    pub(crate) writer: ChildStdin,
    pub(crate) process: GuestProcess,
}

/// Starts the guest with these arguments.
pub(crate) async fn start(arguments: &[&str], private: PrivateDir) -> Result<SpawnedGuest, SandboxError> {
    let PrivateDir { path: dir, output: _, temp_dir } = private;
    let child = match spawn_from_memfd(arguments) {
        Ok(child) => child,
        Err(_) => spawn_from_dir(arguments, dir).await?,
    };
    into_spawned(child, temp_dir)
}

fn spawn_from_memfd(arguments: &[&str]) -> io::Result<Child> {
    guest_binary::as_memfd().and_then(|path| spawn(&path, arguments)).inspect_err(|error| {
        tracing::debug!(%error, "the guest cannot run from memory; it runs from a private file");
    })
}

async fn spawn_from_dir(arguments: &[&str], dir: PathBuf) -> Result<Child, SandboxError> {
    let written = tokio::task::spawn_blocking(move || guest_binary::as_file(&dir)).await;
    written
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .and_then(|path| spawn(&path, arguments))
        .map_err(|error| unavailable("the guest cannot be started", error))
}

fn into_spawned(mut child: Child, temp_dir: Option<MarkedTempDir>) -> Result<SpawnedGuest, SandboxError> {
    let (Some(reader), Some(writer)) = (child.stdout.take(), child.stdin.take()) else {
        return Err(unavailable("the guest has no stream", "its pipes are missing"));
    };
    Ok(SpawnedGuest { reader, writer, process: GuestProcess::new(child, temp_dir) })
}

/// Runs the guest program as a helper that changes owners of files. `question` is a `ChownRequest` in JSON.
#[cfg(feature = "jail")]
pub(crate) async fn run_chown_helper(question: Vec<u8>) -> Result<(), SandboxError> {
    use tokio::io::AsyncWriteExt as _;

    let failed = |error| unavailable("the owner of the files cannot be restored", error);
    let arguments = ["own"];
    // A directory is needed only where the program cannot run from memory.
    let (child, temp_dir) = match spawn_from_memfd(&arguments) {
        Ok(child) => (child, None),
        Err(_) => {
            let private = tokio::task::spawn_blocking(PrivateDir::make).await;
            let private = private.map_err(|error| unavailable("its preparation failed", error))??;
            (spawn_from_dir(&arguments, private.path).await?, private.temp_dir)
        }
    };
    let SpawnedGuest { reader: _reader, mut writer, mut process } = into_spawned(child, temp_dir)?;
    writer.write_all(&question).await.map_err(failed)?;
    drop(writer);
    match process.wait().await {
        end if end == "exit code 0" => Ok(()),
        end => Err(failed(io::Error::other(end))),
    }
}

/// Starts the guest with options that `posix_spawn` supports. Other options would copy the page tables of a large
/// process.
#[expect(clippy::disallowed_methods, reason = "this is where the sandbox's process is started")]
fn spawn(program: &Path, arguments: &[&str]) -> io::Result<Child> {
    Command::new(program)
        .arg0("conjure-guest")
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A Ctrl-C in the terminal must reach only the host, which then ends the guest.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

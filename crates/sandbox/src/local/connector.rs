//! [`Local`]: makes sandboxes that are plain child processes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use conjure_guest::protocol::{Access, Hello, PROTOCOL_VERSION, Root};
use futures_util::future::BoxFuture;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::process::GuestProcess;
use super::{environment, program};
use crate::connector::{Connection, Connector, Isolation};
use crate::context::ExecutionContext;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::types::Layout;

/// Runs the guest as a child process of the host, for trusted use.
///
/// **Nothing is isolated.** Commands run as the host's user: they can read and change every file that it can,
/// reach the whole network whatever [`ExecutionContext::network`] says, see and signal its processes, and use all
/// memory. The roots of the context bound the file operations only, not what commands do. What is promised is
/// tidiness: deadlines, whole process trees ended, bounded output, no key of the host's in the environment.
#[derive(Debug, Clone)]
pub struct Local {
    environment: BTreeMap<String, String>,
}

impl Local {
    /// A connector whose caller knows that it isolates nothing and enforces no network policy. Of the host's
    /// variables, commands see `PATH`, `HOME`, `LANG`, `LC_*`, `TZ`, `USER`, `LOGNAME` and `SHELL`, and besides
    /// what the context says.
    pub fn without_isolation(host_environment: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self { environment: environment::safe(host_environment) }
    }
}

impl Connector for Local {
    fn isolation(&self) -> Isolation {
        Isolation::NONE
    }

    fn connect<'a>(
        &'a self,
        context: &'a ExecutionContext,
    ) -> BoxFuture<'a, Result<Connection, SandboxError>> {
        Box::pin(async move {
            let mut env = self.environment.clone();
            env.extend(context.environment.clone());
            let wanted = context.clone();
            let prepared = tokio::task::spawn_blocking(move || prepare(&wanted, env)).await;
            let prepared = prepared.map_err(|error| unavailable("its preparation failed", error))??;
            start(prepared).await
        })
    }
}

/// A sandbox without its guest.
#[derive(Debug)]
struct Prepared {
    hello: Hello,
    layout: Layout,
    complaints: File,
    folder: TempDir,
}

/// Looks at folders and makes the private one; blocks.
fn prepare(context: &ExecutionContext, env: BTreeMap<String, String>) -> Result<Prepared, SandboxError> {
    let workspace = folder("workspace", &context.workspace)?;
    let workdir = text(&workspace)?;
    let mut roots = vec![Root { path: workdir.clone(), access: Access::ReadWrite }];
    for path in &context.allowed_paths {
        let path = fs::canonicalize(path).map_err(|error| missing("allowed path", path, &error))?;
        roots.push(Root { path: text(&path)?, access: Access::ReadWrite });
    }
    let mut read_only = Vec::new();
    for given in &context.read_only {
        let path = folder("read-only folder", given)?;
        roots.push(Root { path: text(&path)?, access: Access::ReadOnly });
        // A folder may be asked for by the name that the host gave it, or by what it really is.
        if *given != path {
            read_only.push((path.clone(), path.clone()));
        }
        read_only.push((given.clone(), path));
    }

    let private = |error| unavailable("no private folder can be made", error);
    let folder = tempfile::Builder::new().prefix("conjure-").tempdir().map_err(private)?;
    let spill = fs::canonicalize(folder.path()).map_err(private)?.join("output");
    fs::create_dir(&spill).map_err(private)?;
    let spill = text(&spill)?;
    roots.push(Root { path: spill.clone(), access: Access::ReadOnly });
    let complaints = File::options()
        .read(true)
        .append(true)
        .create_new(true)
        .open(folder.path().join("guest.log"))
        .map_err(private)?;

    let hello = Hello { version: PROTOCOL_VERSION, roots, workdir, env, spill_dir: Some(spill) };
    Ok(Prepared { hello, layout: Layout { workspace, read_only }, complaints, folder })
}

async fn start(prepared: Prepared) -> Result<Connection, SandboxError> {
    let Prepared { hello, layout, complaints, folder } = prepared;
    let mut child = match program::in_memory().and_then(|path| spawn(&path, &complaints)) {
        Ok(child) => child,
        Err(error) => {
            tracing::debug!(%error, "the guest cannot be run from memory, a private file it is");
            let place = folder.path().to_owned();
            let written = tokio::task::spawn_blocking(move || program::in_folder(&place)).await;
            written
                .unwrap_or_else(|error| Err(io::Error::other(error)))
                .and_then(|path| spawn(&path, &complaints))
                .map_err(|error| unavailable("the guest cannot be started", error))?
        }
    };
    let (Some(reader), Some(writer)) = (child.stdout.take(), child.stdin.take()) else {
        return Err(unavailable("the guest has no stream", "its pipes are missing"));
    };
    let guard = GuestProcess::new(child, complaints, folder);
    Ok(Connection {
        reader: Box::new(reader),
        writer: Box::new(writer),
        hello,
        layout,
        guard: Box::new(guard),
    })
}

/// Starts the guest by what `posix_spawn` can do: anything more would copy the page tables of a large host.
#[expect(clippy::disallowed_methods, reason = "this is where the sandbox's process is started")]
fn spawn(program: &Path, complaints: &File) -> io::Result<Child> {
    Command::new(program)
        .arg0("conjure-guest")
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(complaints.try_clone()?)
        // A Ctrl-C in the terminal is for the host, which then ends what it started.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

fn folder(what: &str, path: &Path) -> Result<PathBuf, SandboxError> {
    let real = fs::canonicalize(path).map_err(|error| missing(what, path, &error))?;
    if real.is_dir() {
        return Ok(real);
    }
    Err(SandboxError::new(
        SandboxErrorKind::WrongFileType,
        format!("the {what} `{}` is not a folder", path.display()),
    ))
}

fn missing(what: &str, path: &Path, error: &io::Error) -> SandboxError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => SandboxErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => SandboxErrorKind::PermissionDenied,
        _ => SandboxErrorKind::Io,
    };
    SandboxError::new(kind, format!("the {what} `{}` cannot be used: {error}", path.display()))
}

fn text(path: &Path) -> Result<String, SandboxError> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        SandboxError::new(
            SandboxErrorKind::BadRequest,
            format!("the path `{}` is not UTF-8; rename it", path.display()),
        )
    })
}

fn unavailable(what: &str, error: impl std::fmt::Display) -> SandboxError {
    SandboxError::new(SandboxErrorKind::Unavailable, format!("{what}: {error}"))
}

//! The Python packages of a session's sandboxes. Each list of packages is installed once for a tenant, and is read-only
//! in each sandbox.
//!
//! A separate sandbox installs them, because building a package runs foreign code. Its network reaches only the registry
//! of Python packages.
//!
//! State: the running installations. On the disk: `<tenant>/python/DIGEST/packages`, which exists only if its
//! installation is complete. A crash leaves files in the workspace of the installation. The next installation removes
//! them first.

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_actors::admission::Permit;
use conjure_actors::executors::ExecutorSource;
use conjure_base::{Clock as _, Deadline, Digest, SystemClock, lock};
use conjure_fs::{DirHandle, FileLock, ensure_dir};
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, CommandOutcome, Executor, Isolation, Layout, SandboxError,
    SandboxErrorKind, SharedDir,
};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::config::ExecutorKind;
use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::session::python::python_requirement::PythonRequirement;
use crate::workspace::CopyBounds;
use crate::workspace::copy_tree;

/// The path in a sandbox of the directory with the packages. The directory exists before the packages are installed.
const SHARED_DIR: &str = "/opt/conjure/python";

/// The name of the packages' directory in that directory.
const PACKAGES: &str = "packages";

/// How long an installation may take.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// How long the sandbox of an installation may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How often an installation tries to get the lock that another process holds.
const LOCK_INTERVAL: Duration = Duration::from_millis(200);

/// The most characters of program output in the error of an installation.
const MAX_REASON_CHARS: usize = 2_000;

/// Prints the requirements that the sandbox's Python does not meet, one a line. Apart from the standard library, it needs
/// only packages inside of `pip`.
const MISSING: &str = "
import sys
try:
    from importlib.metadata import version, PackageNotFoundError
    from pip._vendor.packaging.requirements import Requirement
except ImportError:
    sys.exit('there is no pip: install python3-pip in the image of the sandboxes, or on this machine')
for text in sys.argv[1:]:
    wanted = Requirement(text)
    if wanted.marker is not None and not wanted.marker.evaluate():
        continue
    try:
        met = not wanted.extras and wanted.specifier.contains(version(wanted.name), prereleases=True)
    except PackageNotFoundError:
        met = False
    if not met:
        print(text)
";

/// The packages of one list, and where they are installed.
pub(crate) struct PythonPackages {
    requirements: Vec<PythonRequirement>,
    /// The directory that sandboxes share. It is empty until the packages are installed.
    shared: PathBuf,
    /// The directory of the packages. It exists once they are installed.
    dir: PathBuf,
    /// The name of the workspace in which the installation runs.
    workspace: String,
    home: Arc<TenantDir>,
    /// The kind of the sandboxes that have the packages.
    kind: ExecutorKind,
}

impl PythonPackages {
    /// Describes these packages of a tenant, and creates their shared directory. Blocks.
    pub(crate) fn new(
        requirements: Vec<PythonRequirement>,
        home: &Arc<TenantDir>,
        kind: ExecutorKind,
    ) -> std::io::Result<Self> {
        let mut names: Vec<&str> = requirements.iter().map(PythonRequirement::as_str).collect();
        names.sort_unstable();
        names.dedup();
        let digest = Digest::of_bytes(names.join("\n").as_bytes()).to_hex();
        let all = home.data.path().join("python");
        let shared = all.join(&digest);
        ensure_dir(&all)?;
        ensure_dir(&shared)?;
        make_readable(&File::open(&shared)?)?;
        let workspace = format!("python-{}", digest.get(..16).unwrap_or_default());
        let dir = shared.join(PACKAGES);
        Ok(Self { requirements, shared, dir, workspace, home: Arc::clone(home), kind })
    }

    /// The kind of the sandboxes that have the packages.
    pub(crate) const fn kind(&self) -> ExecutorKind {
        self.kind
    }

    /// The shared directory on this machine, and its path in the sandboxes. `None` for `local`, whose commands use this
    /// machine's paths.
    pub(crate) fn shared_dir(&self) -> Option<SharedDir> {
        (self.kind != ExecutorKind::Local).then(|| SharedDir::new(&self.shared, SHARED_DIR))
    }

    /// The path at which the Python of a sandbox finds the packages.
    pub(crate) fn python_path(&self) -> String {
        match self.kind {
            ExecutorKind::Local => self.dir.to_string_lossy().into_owned(),
            _ => format!("{SHARED_DIR}/{PACKAGES}"),
        }
    }

    /// Creates the workspace of the installation, empty. Blocks.
    fn empty_workspace(&self) -> Result<PathBuf, SandboxError> {
        self.home.data.remove_workspace(&self.workspace)?;
        self.home.data.named_workspace(&self.workspace)
    }
}

/// Creates the source of the sandbox for an installation, whose workspace is the given empty directory. Blocks.
pub(crate) type InstallSource =
    Box<dyn Fn(PathBuf) -> Result<Arc<dyn ExecutorSource>, RuntimeError> + Send + Sync>;

type Installation = Shared<BoxFuture<'static, Result<(), Arc<str>>>>;

/// The running installations of a runtime. Dropping it cancels them.
pub(crate) struct PythonInstaller {
    running: Arc<Mutex<HashMap<PathBuf, Installation>>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    _shutdown_guard: DropGuard,
}

impl Default for PythonInstaller {
    fn default() -> Self {
        let shutdown = CancellationToken::new();
        let guard = shutdown.clone().drop_guard();
        Self { running: Arc::default(), tasks: TaskTracker::new(), shutdown, _shutdown_guard: guard }
    }
}

impl PythonInstaller {
    /// Cancels the running installations, and waits for their end until the deadline.
    pub(crate) async fn end(&self, deadline: Deadline) {
        self.shutdown.cancel();
        self.tasks.close();
        tokio::select! {
            biased;
            () = self.tasks.wait() => {}
            () = SystemClock.sleep_until(deadline) => {}
        }
    }

    /// Joins the running installation of these packages, or starts one. It continues if its callers stop waiting. After a
    /// failure, the next call starts a new one.
    fn install(&self, packages: &Arc<PythonPackages>, source: &Arc<InstallSource>) -> Installation {
        let mut running = lock(&self.running);
        if let Some(installation) = running.get(&packages.dir) {
            return installation.clone();
        }
        let (dir, installations) = (packages.dir.clone(), Arc::clone(&self.running));
        let (packages, source, shutdown) = (Arc::clone(packages), Arc::clone(source), self.shutdown.clone());
        let work = async move {
            let installed = tokio::select! {
                biased;
                () = shutdown.cancelled() => Err("the runtime is shutting down".to_owned()),
                installed = install_locked(&packages, &source, &shutdown) => installed,
            };
            lock(&installations).remove(&packages.dir);
            installed.map_err(Arc::from)
        };
        let installation = work.boxed().shared();
        running.insert(dir, installation.clone());
        drop(self.tasks.spawn(installation.clone()));
        installation
    }
}

/// Installs the packages unless this process or another one has done it meanwhile.
async fn install_locked(
    packages: &Arc<PythonPackages>,
    source: &Arc<InstallSource>,
    shutdown: &CancellationToken,
) -> Result<(), String> {
    let deadline = SystemClock.deadline(INSTALL_TIMEOUT);
    let lock_path = packages.shared.with_extension("lock");
    // Blocking work continues if this future is dropped. It holds the lock until it ends.
    let file_lock = Arc::new(loop {
        let file =
            FileLock::open(&lock_path).map_err(|errno| format!("`{}`: {errno}", lock_path.display()))?;
        match FileLock::try_exclusive(file).map_err(|errno| errno.to_string())? {
            Some(held) => break held,
            None if SystemClock.remaining(deadline).is_zero() => {
                return Err("another process has been installing them for too long".to_owned());
            }
            None => SystemClock.sleep_until(SystemClock.deadline(LOCK_INTERVAL)).await,
        }
    });
    if packages.dir.is_dir() {
        return Ok(());
    }
    let (to_install, open_source, held) = (Arc::clone(packages), Arc::clone(source), Arc::clone(&file_lock));
    let prepared = conjure_fs::run_blocking(move || {
        let _held = held;
        let workspace = to_install.empty_workspace().map_err(|error| error.to_string())?;
        let source = open_source(workspace.clone()).map_err(|error| error.to_string())?;
        Ok::<_, String>((workspace, source))
    });
    let (workspace, source) = prepared.await.map_err(|error| error.to_string())??;
    let start = SystemClock.deadline(START_TIMEOUT).min(deadline);
    let _permit = source.acquire_permit(start).await.map_err(|error| error.to_string())?;
    let sandbox = source.create(start).await.map_err(|error| error.to_string())?;
    let options = CallOptions { deadline, cancel: shutdown.clone() };
    let installed = install_in(&*sandbox, &packages.requirements, options).await;
    drop(sandbox);
    let (installed_packages, cancel) = (Arc::clone(packages), shutdown.clone());
    conjure_fs::run_blocking(move || {
        let _held = file_lock;
        match installed {
            Ok(()) => finish(&installed_packages, &workspace, &cancel),
            Err(reason) => {
                // The files may be large. If this removal fails, the next installation repeats it.
                let _ = installed_packages.home.data.remove_workspace(&installed_packages.workspace);
                Err(reason)
            }
        }
    })
    .await
    .map_err(|error| error.to_string())?
}

/// Installs what the sandbox lacks into the directory `layer` of its workspace.
async fn install_in(
    sandbox: &dyn Executor,
    requirements: &[PythonRequirement],
    options: CallOptions,
) -> Result<(), String> {
    let names = requirements.iter().map(PythonRequirement::as_str);
    let find = ["python3", "-I", "-c", MISSING].into_iter().chain(names);
    let found = run(sandbox, Command { merge_stderr: false, ..Command::new(find) }, options.clone()).await?;
    let missing: Vec<String> =
        String::from_utf8_lossy(&found.stdout.head).lines().map(str::to_owned).collect();
    run(sandbox, Command::new(["mkdir", "layer"]), options.clone()).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let pip = [
        "python3",
        "-m",
        "pip",
        "install",
        "--target",
        "layer",
        "--no-input",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--no-warn-script-location",
        "--",
    ];
    let command = Command::new(pip.into_iter().map(str::to_owned).chain(missing));
    run(sandbox, command, options).await.map(drop)
}

/// Runs a program. If it does not exit with 0, the error contains the end of its output.
async fn run(
    sandbox: &dyn Executor,
    command: Command,
    options: CallOptions,
) -> Result<CommandOutcome, String> {
    let outcome = sandbox.run(command, options).await.map_err(|error| error.to_string())?;
    let reason = match outcome.end {
        CommandEnd::Exited(0) => return Ok(outcome),
        CommandEnd::Exited(code) => format!("the installation ended with {code}"),
        CommandEnd::TimedOut => format!("it was not done after {} s", INSTALL_TIMEOUT.as_secs()),
        CommandEnd::QuotaExceeded(_) => "the packages do not fit the sandbox's disk quota".to_owned(),
        CommandEnd::OutOfMemory => "memory ran out".to_owned(),
        _ => "the installation was ended".to_owned(),
    };
    let output_text =
        [&outcome.stdout, &outcome.stderr].map(|output| [&*output.head, &*output.tail].concat()).concat();
    let output_text = String::from_utf8_lossy(&output_text);
    let output_text = output_text.trim();
    let skipped = output_text.chars().count().saturating_sub(MAX_REASON_CHARS);
    let tail: String = output_text.chars().skip(skipped).collect();
    Err(if tail.is_empty() { reason } else { format!("{reason}: {tail}") })
}

/// Moves the installed packages to their final directory. Blocks.
fn finish(packages: &PythonPackages, workspace: &Path, cancel: &CancellationToken) -> Result<(), String> {
    let failed = |path: &Path, reason: &dyn fmt::Display| format!("`{}`: {reason}", path.display());
    // Foreign code has run in the workspace, so links in it are not followed.
    let root = DirHandle::open(workspace).map_err(|errno| failed(workspace, &errno))?;
    let layer = root.open_dir(Path::new("layer")).map_err(|errno| failed(workspace, &errno))?;
    let partial = packages.shared.with_extension("partial");
    conjure_sandbox::dir_id(&partial)
        .ok()
        .map(|id| conjure_sandbox::remove_tree(&partial, id))
        .transpose()
        .map_err(|error| failed(&partial, &error))?;
    ensure_dir(&partial).map_err(|error| failed(&partial, &error))?;
    let to = File::open(&partial).map_err(|error| failed(&partial, &error))?;
    make_readable(&to).map_err(|error| failed(&partial, &error))?;
    let copy = to.try_clone().map_err(|error| failed(&partial, &error))?;
    copy_tree(layer.into(), copy.into(), CopyBounds::default(), cancel)
        .map_err(|error| failed(&error.path, &error.reason))?;
    // A directory with the final name counts as complete forever, also after a power loss. So its content must be durable
    // before the rename. The workspace is removed before the rename, because no later step would look for it.
    rustix::fs::syncfs(&to).map_err(|errno| failed(&partial, &errno))?;
    packages.home.data.remove_workspace(&packages.workspace).map_err(|error| error.to_string())?;
    std::fs::rename(&partial, &packages.dir).map_err(|error| failed(&packages.dir, &error))
}

/// The user of a jail may be another one, so everybody may read the directory. The parent directories keep other users of this
/// machine out.
fn make_readable(directory: &File) -> std::io::Result<()> {
    directory.set_permissions(Permissions::from_mode(0o755))
}

/// A source that creates a sandbox only after the packages are installed.
pub(crate) struct PackagedSource {
    source: Arc<dyn ExecutorSource>,
    packages: Arc<PythonPackages>,
    install: Arc<InstallSource>,
    installer: Arc<PythonInstaller>,
}

impl PackagedSource {
    /// Creates the source. The first sandbox starts the installation, unless the packages are installed already.
    pub(crate) fn new(
        source: Arc<dyn ExecutorSource>,
        packages: PythonPackages,
        install: InstallSource,
        installer: &Arc<PythonInstaller>,
    ) -> Self {
        Self {
            source,
            packages: Arc::new(packages),
            install: Arc::new(install),
            installer: Arc::clone(installer),
        }
    }

    /// Waits until the packages are installed.
    async fn installed(&self, deadline: Deadline) -> Result<(), SandboxError> {
        if self.packages.dir.is_dir() {
            return Ok(());
        }
        let unavailable = |reason: String| SandboxError::new(SandboxErrorKind::Unavailable, reason);
        tokio::select! {
            biased;
            installed = self.installer.install(&self.packages, &self.install) => installed.map_err(|reason| {
                unavailable(format!("the Python packages of the session could not be installed: {reason}"))
            }),
            () = SystemClock.sleep_until(deadline) => Err(unavailable(
                "the Python packages of the session are still being installed; try again in a minute".to_owned(),
            )),
        }
    }
}

impl fmt::Debug for PackagedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackagedSource").field("source", &self.source).finish_non_exhaustive()
    }
}

impl ExecutorSource for PackagedSource {
    fn layout(&self) -> &Layout {
        self.source.layout()
    }

    fn isolation(&self) -> Isolation {
        self.source.isolation()
    }

    /// Waits for the installation first, then for the permit. The other order could block: the sandbox of the
    /// installation needs a permit, too.
    fn acquire_permit(&self, deadline: Deadline) -> BoxFuture<'_, Result<Option<Permit>, SandboxError>> {
        Box::pin(async move {
            self.installed(deadline).await?;
            self.source.acquire_permit(deadline).await
        })
    }

    fn create(&self, deadline: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        self.source.create(deadline)
    }
}

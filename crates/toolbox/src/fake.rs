//! A fake [`Executor`] for tests: files in memory, scripted commands.
//!
//! It follows the contract of [`Executor`] as far as tools see it: paths relative to the workspace, errors by kind, deadlines and
//! cancellation. Nothing is executed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use conjure_base::{Clock, SystemClock, lock};
use conjure_sandbox::{
    ArtifactDir, CallOptions, Command, CommandEnd, CommandOutcome, CommandOutput, ContentDir, ContentItem,
    DirectoryEntry, EntryKind, Executor, ItemContent, Layout, LineRange, Listing, ReachedLimits,
    SandboxError, SandboxErrorKind, View, WriteResult,
};
use futures_util::future::{self, BoxFuture, Either};

/// The directory that relative paths start from.
pub const WORKSPACE: &str = "/workspace";

/// The behaviour of a command.
#[derive(Debug, Clone)]
pub enum FakeCommand {
    /// It ends at once with this outcome.
    Exits(CommandOutcome),
    /// It cannot be started.
    FailsToStart(SandboxError),
    /// It writes this output and then runs until its deadline or cancellation.
    RunsUntilCancelled(String),
    /// It never returns, as with an executor that breaks its contract.
    IgnoresCancel,
}

/// An executor for tests. Clones share their state.
#[derive(Debug, Clone)]
pub struct FakeExecutor {
    layout: Layout,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Vec<u8>>,
    commands: BTreeMap<String, FakeCommand>,
    ran: Vec<Command>,
    running: usize,
    /// The artifacts that cannot be installed, by name, with the error.
    refused: BTreeMap<String, SandboxError>,
    /// The content that was installed and removed, in order.
    content_changes: Vec<String>,
}

impl Default for FakeExecutor {
    fn default() -> Self {
        Self {
            layout: Layout {
                workspace: PathBuf::from(WORKSPACE),
                read_only: Vec::new(),
                artifacts: ArtifactDir::None,
            },
            state: Arc::default(),
        }
    }
}

impl FakeExecutor {
    /// Creates an executor with an empty workspace, in which every command is unknown.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file.
    #[must_use]
    pub fn with_file(self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.state().files.insert(absolute(path), content.into());
        self
    }

    /// Accepts artifacts, as a sandbox with its own file system does.
    #[must_use]
    pub fn with_content_dir(mut self) -> Self {
        self.layout.artifacts = ArtifactDir::Fixed(PathBuf::from(ContentDir::Artifacts.path()));
        self
    }

    /// Maps a directory of this machine to a path in the sandbox.
    #[must_use]
    pub fn with_skill_dir(mut self, host: impl Into<PathBuf>, inside: impl Into<PathBuf>) -> Self {
        self.layout.read_only.push((host.into(), inside.into()));
        self
    }

    /// Makes installing this artifact fail; `None` makes it succeed again.
    pub fn fail_installs(&self, name: &str, error: Option<SandboxError>) {
        match error {
            Some(error) => self.state().refused.insert(name.to_owned(), error),
            None => self.state().refused.remove(name),
        };
    }

    /// The content that was installed (`+ NAME`) and removed (`- NAME`), in order.
    #[must_use]
    pub fn installed_content(&self) -> Vec<String> {
        self.state().content_changes.clone()
    }

    /// Sets the behaviour of a command.
    #[must_use]
    pub fn with_command(self, script: &str, command: FakeCommand) -> Self {
        self.state().commands.insert(script.to_owned(), command);
        self
    }

    /// The content of a file.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<Vec<u8>> {
        self.state().files.get(&absolute(path)).cloned()
    }

    /// The commands that ran, in start order.
    #[must_use]
    pub fn commands(&self) -> Vec<Command> {
        self.state().ran.clone()
    }

    /// How many commands are running.
    #[must_use]
    pub fn running(&self) -> usize {
        self.state().running
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The outcome of a command that exited with `code` after it wrote `output`, one second after its start.
#[must_use]
pub fn exited(code: i32, output: impl Into<Vec<u8>>) -> CommandOutcome {
    ended(CommandEnd::Exited(code), output)
}

/// The outcome of a command that ended like this after it wrote `output`, one second after its start.
#[must_use]
pub fn ended(end: CommandEnd, output: impl Into<Vec<u8>>) -> CommandOutcome {
    let head = output.into();
    let total = head.len() as u64;
    CommandOutcome {
        end,
        stdout: CommandOutput { head, total, ..CommandOutput::default() },
        stderr: CommandOutput::default(),
        duration: Duration::from_secs(1),
        limits_hit: ReachedLimits::default(),
    }
}

/// Counts a command as running until dropped.
struct Running(FakeExecutor);

impl Running {
    fn start(executor: &FakeExecutor) -> Self {
        executor.state().running += 1;
        Self(executor.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.state().running -= 1;
    }
}

impl Executor for FakeExecutor {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn run<'a>(
        &'a self,
        command: Command,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        Box::pin(async move {
            let script = command.argv.last().cloned().unwrap_or_default();
            let behaviour = {
                let mut state = self.state();
                state.ran.push(command);
                state.commands.get(&script).cloned()
            };
            let _running = Running::start(self);
            match behaviour {
                None => Ok(exited(127, format!("bash: line 1: {script}: command not found\n"))),
                Some(FakeCommand::Exits(outcome)) => Ok(outcome),
                Some(FakeCommand::FailsToStart(error)) => Err(error),
                Some(FakeCommand::IgnoresCancel) => future::pending().await,
                Some(FakeCommand::RunsUntilCancelled(output)) => {
                    let cancelled = Box::pin(options.cancel.cancelled());
                    let end = match future::select(cancelled, SystemClock.sleep_until(options.deadline)).await
                    {
                        Either::Left(_) => CommandEnd::Cancelled,
                        Either::Right(_) => CommandEnd::TimedOut,
                    };
                    Ok(ended(end, output))
                }
            }
        })
    }

    fn view<'a>(
        &'a self,
        path: &'a str,
        range: Option<LineRange>,
        max_bytes: u64,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<View, SandboxError>> {
        Box::pin(async move {
            let path = absolute(path);
            let state = self.state();
            match state.files.get(&path) {
                Some(content) => show(content, range, max_bytes),
                None => list(&state.files, &path).ok_or_else(|| missing(&path)),
            }
        })
    }

    fn create_file<'a>(
        &'a self,
        path: &'a str,
        content: &'a [u8],
        _: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        Box::pin(async move {
            let size = content.len() as u64;
            Ok(match self.state().files.entry(absolute(path)) {
                Entry::Occupied(mut entry) => {
                    entry.insert(content.to_vec());
                    WriteResult { size, existed: true }
                }
                Entry::Vacant(entry) => {
                    entry.insert(content.to_vec());
                    WriteResult { size, existed: false }
                }
            })
        })
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        Box::pin(async move {
            let path = absolute(path);
            let mut state = self.state();
            let content = state.files.get_mut(&path).ok_or_else(|| missing(&path))?;
            let text = std::str::from_utf8(content)
                .map_err(|_| SandboxError::new(SandboxErrorKind::NotText, "the file is not UTF-8 text"))?;
            match text.matches(old).count() {
                1 => {
                    *content = text.replace(old, new).into_bytes();
                    Ok(WriteResult { size: content.len() as u64, existed: true })
                }
                0 => Err(SandboxError::new(SandboxErrorKind::NoMatch, "the text to replace does not occur")),
                count => Err(SandboxError::new(
                    SandboxErrorKind::NotUnique,
                    format!("the text to replace occurs {count} times"),
                )),
            }
        })
    }

    fn install_content<'a>(
        &'a self,
        provision: ContentItem,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<PathBuf, SandboxError>> {
        Box::pin(async move {
            let (path, name) = (provision.path(), &provision.name);
            let ItemContent::File { digest, .. } = provision.content else {
                return Err(SandboxError::new(SandboxErrorKind::Unsupported, "it takes files alone"));
            };
            let mut state = self.state();
            if let Some(error) = state.refused.get(name) {
                return Err(error.clone());
            }
            let found = provision.store.path(&digest).ok().flatten();
            let content = found.and_then(|path| std::fs::read(path).ok()).ok_or_else(|| missing(name))?;
            let key = path.to_string_lossy().into_owned();
            match state.files.get(&key) {
                Some(there) if *there == content => return Ok(path),
                Some(_) => {
                    return Err(SandboxError::new(SandboxErrorKind::Exists, format!("`{key}` is there")));
                }
                None => {}
            }
            state.content_changes.push(format!("+ {name}"));
            state.files.insert(key, content);
            Ok(path)
        })
    }

    fn remove_content<'a>(
        &'a self,
        dir: ContentDir,
        name: &'a str,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        Box::pin(async move {
            let mut state = self.state();
            if state.files.remove(&format!("{}/{name}", dir.path())).is_some() {
                state.content_changes.push(format!("- {name}"));
            }
            Ok(())
        })
    }
}

fn absolute(path: &str) -> String {
    let path = path.trim_end_matches('/');
    if path.starts_with('/') { path.to_owned() } else { format!("{WORKSPACE}/{path}") }
}

fn missing(path: &str) -> SandboxError {
    SandboxError::new(SandboxErrorKind::NotFound, format!("`{path}` is not there"))
}

fn show(content: &[u8], range: Option<LineRange>, max_bytes: u64) -> Result<View, SandboxError> {
    let size = content.len() as u64;
    if content.starts_with(b"\x89PNG") {
        if size > max_bytes {
            return Err(SandboxError::new(SandboxErrorKind::TooLarge, format!("the image has {size} bytes")));
        }
        return Ok(View::Image { media_type: "image/png".to_owned(), bytes: content.to_vec() });
    }
    let Ok(whole) = std::str::from_utf8(content) else { return Ok(View::Binary { size }) };
    let total_lines = whole.split_inclusive('\n').count() as u64;
    let first_line = range.map_or(1, |range| range.first);
    let last_line_number = range.and_then(|range| range.last).unwrap_or(total_lines).min(total_lines);
    let room = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let asked: String = (1..)
        .zip(whole.split_inclusive('\n'))
        .filter(|(number, _)| (first_line..=last_line_number).contains(number))
        .map(|(_, line)| line)
        .collect();
    let text = asked[..asked.floor_char_boundary(room.min(asked.len()))].to_owned();
    let shown = text.split_inclusive('\n').count() as u64;
    Ok(View::Text {
        first_line: if size == 0 { 0 } else { first_line },
        last_line: (first_line + shown).saturating_sub(1),
        total_lines,
        size,
        truncated: text.len() < asked.len(),
        text,
    })
}

fn list(files: &BTreeMap<String, Vec<u8>>, directory: &str) -> Option<View> {
    let mut entries: BTreeMap<String, DirectoryEntry> = BTreeMap::new();
    for (path, content) in files {
        let Some(rest) = path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/')) else {
            continue;
        };
        let names: Vec<&str> = rest.split('/').collect();
        for depth in 1..=names.len().min(2) {
            let path = names[..depth].join("/");
            let (kind, size) = if depth == names.len() {
                (EntryKind::File, content.len() as u64)
            } else {
                (EntryKind::Directory, 0)
            };
            let mode = if kind == EntryKind::Directory { 0o755 } else { 0o644 };
            entries.insert(path.clone(), DirectoryEntry { path, kind, size, modified_ns: 0, mode });
        }
    }
    let empty_workspace = entries.is_empty() && directory == WORKSPACE;
    (!entries.is_empty() || empty_workspace)
        .then(|| View::Directory(Listing { entries: entries.into_values().collect(), truncated: false }))
}

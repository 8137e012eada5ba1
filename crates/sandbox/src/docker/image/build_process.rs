//! A program on this machine that does a part of a build: `mmdebstrap` or `pip`.
//!
//! State: the process, in its own process group. If it is dropped before its end, the program gets SIGTERM, so that
//! it can remove its mounts and unpacked files. Then it is killed.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use super::build_dir::BuildDir;
use super::error::{ImageError, ImageErrorKind, ROOM_HERE};
use super::progress::ProgressReporter;

/// The interval of checks while a program cleans up.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const GRACE_POLLS: u32 = 1_000;

/// How many of the last lines are searched for the reason of a failure.
const KEPT_LINES: usize = 40;

/// A program and its path.
#[derive(Debug)]
pub(super) struct HostProgram {
    name: &'static str,
    path: PathBuf,
}

impl HostProgram {
    /// Searches for a program as a shell does.
    ///
    /// # Errors
    /// `MissingProgram`, with the package that contains it.
    pub(super) fn find(
        name: &'static str,
        package: &str,
        environment: &[(OsString, OsString)],
    ) -> Result<Self, ImageError> {
        let path =
            environment.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let dirs = std::env::split_paths(path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin")));
        let is_program = |path: &PathBuf| {
            path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
        };
        let found = dirs.map(|dir| dir.join(name)).find(is_program);
        found.map(|path| Self { name, path }).ok_or_else(|| {
            ImageError::new(ImageErrorKind::MissingProgram, format!("`{name}` is not on this machine"))
                .with_hint(format!("install it: `apt-get install {package}`"))
        })
    }
}

/// A running program.
#[derive(Debug)]
pub(super) struct BuildProcess {
    name: &'static str,
    build_dir: Arc<BuildDir>,
    /// `None` once it has ended.
    child: Option<Child>,
    errors: Option<BufReader<ChildStderr>>,
    last: VecDeque<String>,
}

impl BuildProcess {
    /// Starts the program in the build's directory, with these variables and no input. The caller can take its
    /// standard output.
    pub(super) fn start(
        build_dir: &Arc<BuildDir>,
        program: &HostProgram,
        arguments: &[OsString],
        environment: &[(OsString, OsString)],
    ) -> Result<Self, ImageError> {
        // Sets the umask, whatever the host's umask is: other users must be able to read the created files.
        #[expect(clippy::disallowed_methods, reason = "this is where the programs of a build are started")]
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "umask 022; exec \"$@\"", "sh"]).arg(&program.path).args(arguments);
        command.env_clear().envs(environment.iter().cloned());
        // English messages, because this module searches them for errors.
        command
            .env("LC_ALL", "C.UTF-8")
            .env("TMPDIR", build_dir.path())
            .env("CONJURE_SITE", build_dir.path());
        command.current_dir(build_dir.path()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| ImageError::io(&format!("start `{}`", program.name), &error))?;
        let errors = child.stderr.take().map(BufReader::new);
        Ok(Self {
            name: program.name,
            build_dir: Arc::clone(build_dir),
            child: Some(child),
            errors,
            last: VecDeque::new(),
        })
    }

    /// Its standard output. A caller that takes it must read it.
    pub(super) fn take_output(&mut self) -> Option<ChildStdout> {
        self.child.as_mut()?.stdout.take()
    }

    /// Reports the lines of its standard error until it ends.
    ///
    /// # Errors
    /// The reason of its failure, as far as its output shows it.
    pub(super) async fn finish(&mut self, progress: &ProgressReporter<'_>) -> Result<(), ImageError> {
        let failed = |error: &std::io::Error| ImageError::io("read the output of a program", error);
        if let Some(mut errors) = self.errors.take() {
            let mut line = Vec::new();
            while errors.read_until(b'\n', &mut line).await.map_err(|error| failed(&error))? > 0 {
                // A progress line overwrites itself on a terminal. Only its last state is reported.
                let text = String::from_utf8_lossy(&line);
                let text = text.trim_end().rsplit('\r').next().unwrap_or_default().to_owned();
                progress.line(&text);
                if self.last.len() == KEPT_LINES {
                    self.last.pop_front();
                }
                self.last.push_back(text);
                line.clear();
            }
        }
        let Some(child) = self.child.as_mut() else { return Ok(()) };
        let status = child.wait().await.map_err(|error| failed(&error))?;
        self.child = None;
        if status.success() { Ok(()) } else { Err(explained(self.name, &status.to_string(), &self.last)) }
    }
}

impl Drop for BuildProcess {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.build_dir.spawn_cleanup(move || end(child));
        }
    }
}

/// Ends a program and all processes of its group.
fn end(mut child: Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let Some(group) = group else { return };
    let _ = rustix::process::kill_process_group(group, Signal::TERM);
    // The program stays a zombie during these checks, so its process group id is not reused.
    let looks = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    for _ in 0..GRACE_POLLS {
        match rustix::process::waitid(WaitId::Pid(group), looks) {
            Ok(None) => pause(),
            Ok(Some(_)) | Err(_) => break,
        }
    }
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    for _ in 0..GRACE_POLLS {
        match child.try_wait() {
            Ok(None) => pause(),
            Ok(Some(_)) | Err(_) => return,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "on a thread of its own, between two looks at a process that ends"
)]
fn pause() {
    std::thread::sleep(POLL_INTERVAL);
}

/// The error for a program that failed after these last lines.
fn explained(name: &str, status: &str, last: &VecDeque<String>) -> ImageError {
    let reason = last.iter().rev().find(|line| is_error_line(line)).or_else(|| last.back());
    let reason = reason.map_or_else(|| status.to_owned(), |line| line.trim().to_owned());
    let says = |words: &[&str]| last.iter().any(|line| words.iter().any(|word| line.contains(word)));
    let failed = |kind| ImageError::new(kind, format!("`{name}` failed: {reason}"));
    if says(&["No space left on device", "Disk quota exceeded", "You don't have enough free space"]) {
        failed(ImageErrorKind::NoSpace).with_hint(ROOM_HERE)
    } else if says(&["No module named pip"]) {
        ImageError::new(ImageErrorKind::MissingProgram, "`pip` is not on this machine")
            .with_hint("install it: `apt-get install python3-pip`")
    } else if says(&["NO_PUBKEY", "is not signed", "signatures couldn't be verified"]) {
        failed(ImageErrorKind::Failed).with_hint(
            "the keys of the distribution are missing or old: `apt-get install debian-archive-keyring ubuntu-keyring`",
        )
    } else if says(&["DO NOT MATCH THE HASHES"]) {
        failed(ImageErrorKind::Failed)
            .with_hint("what was fetched is not what the list of wheels names; do not use it")
    } else if says(&[
        "Temporary failure resolving",
        "Could not resolve",
        "Unable to connect",
        "Could not connect",
        "Connection timed out",
        "Connection failed",
        "connection broken",
        "Failed to establish a new connection",
        "Network is unreachable",
        "CERTIFICATE_VERIFY_FAILED",
        "Max retries exceeded",
    ]) {
        failed(ImageErrorKind::Network).with_hint(
            "look at the network, the proxy (`http_proxy`, `https_proxy`) and, for `pip`, its index (`PIP_INDEX_URL`) and \
             the certificates that it trusts (`PIP_CERT`)",
        )
    } else if says(&["Unable to locate package", "has no installation candidate"]) {
        failed(ImageErrorKind::BadRequest).with_hint("the release does not have this package")
    } else if says(&["unshare", "newuidmap", "/etc/subuid", "unprivileged user namespaces"]) {
        failed(ImageErrorKind::Failed).with_hint(
            "not as root, `mmdebstrap` needs user namespaces: `apt-get install uidmap`, and lines for this user in \
             /etc/subuid and /etc/subgid; or build as root",
        )
    } else {
        failed(ImageErrorKind::Failed)
    }
}

/// Whether a line names the cause of a failure, as apt and pip write it. A line that only says that another program
/// failed does not.
fn is_error_line(line: &str) -> bool {
    let says_nothing = ["E: apt-get", "E: mmdebstrap", "E: setup", "E: run_", "E: Some index files"];
    let line = line.trim_start();
    ["E: ", "ERROR: ", "Err:"].iter().any(|start| line.starts_with(start))
        && !says_nothing.iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests;

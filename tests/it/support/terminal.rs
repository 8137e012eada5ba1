//! Runs the command at a pseudo-terminal, in the foreground.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{Conjure, Finished, Reader, eventually};

/// The end of a terminal where a person sits.
pub(crate) struct Terminal {
    person: File,
    program: File,
    has_output: bool,
}

/// A run at a terminal. Dropping it kills it.
pub(crate) struct AtTerminal {
    child: Child,
    person: File,
    screen: Reader,
    stdout: Reader,
    _home: tempfile::TempDir,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap().into_string().unwrap();
        // Not ours: a test has no terminal.
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        let program = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
        Self { person: person.into(), program: program.into(), has_output: false }
    }

    /// Standard output is shown on it, too.
    pub(crate) fn with_output(mut self) -> Self {
        self.has_output = true;
        self
    }

    /// Types it.
    pub(crate) fn types(&mut self, keys: &str) {
        self.person.write_all(keys.as_bytes()).unwrap();
    }

    /// Starts `conjure` with these arguments, and with what `with` adds.
    pub(crate) fn start<A: AsRef<std::ffi::OsStr>>(
        self,
        args: impl IntoIterator<Item = A>,
        with: impl FnOnce(Conjure) -> Conjure,
    ) -> AtTerminal {
        // The session's first process, which gives it its terminal and becomes the command.
        let mut conjure = with(Conjure::started_by(&["setsid", "--ctty"], args));
        let own = |file: &File| Stdio::from(OwnedFd::from(file.try_clone().unwrap()));
        conjure.command.stdin(own(&self.program)).stderr(own(&self.program));
        conjure.command.stdout(if self.has_output { own(&self.program) } else { Stdio::piped() });
        let mut child = conjure.command.spawn().unwrap();
        let stdout = child.stdout.take().map(Reader::start).unwrap_or_default();
        let screen = Reader::start(self.person.try_clone().unwrap());
        AtTerminal { child, person: self.person, screen, stdout, _home: conjure.home }
    }
}

impl AtTerminal {
    /// Waits until the screen has shown this, so often.
    #[track_caller]
    pub(crate) fn shows(&self, part: &str, times: usize) {
        eventually(&format!("the screen shows `{part}`"), || {
            self.screen.text().matches(part).count() >= times
        });
    }

    /// Types it.
    pub(crate) fn types(&mut self, keys: &str) {
        self.person.write_all(keys.as_bytes()).unwrap();
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// True if the terminal echoes typed text, as it does unless a program edits lines.
    pub(crate) fn echoes(&self) -> bool {
        let mode = rustix::termios::tcgetattr(&self.person).unwrap();
        mode.local_modes.contains(rustix::termios::LocalModes::ECHO | rustix::termios::LocalModes::ICANON)
    }

    /// Waits for its end, which must come. What the screen has shown stands for standard error.
    pub(crate) fn wait(mut self) -> Finished {
        let mut ended = None;
        eventually("the command ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        let stderr = self.screen.finish().replace("\r\n", "\n");
        Finished { code: ended.unwrap().code(), stdout: self.stdout.finish(), stderr }
    }
}

impl Drop for AtTerminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "the message helps to understand the failed test")]
            {
                eprintln!("the screen showed: {:?}", self.screen.text());
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

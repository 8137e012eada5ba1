//! A host as its parent sees it: a process that writes log lines.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use conjure::runtime::Deadline;
use conjure::{Clock as _, SystemClock};
use test_support::KillOnDrop;

use super::Result;
use super::fixture::temporary_dir;
use super::host::HostOptions;
use super::log_lines::{LogLine, write_key};

/// A host that runs.
pub(crate) struct Host {
    child: KillOnDrop,
    /// Which process it is, of all that the machine has had.
    pub(crate) identity: Identity,
    /// The sessions that it was told of.
    pub(crate) known: BTreeSet<String>,
    /// Those that it was to delete.
    pub(crate) doomed: BTreeSet<String>,
    lines: Receiver<String>,
    pub(crate) words: Vec<LogLine>,
}

/// A process: its number may be used again, its start is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// In clock ticks since the machine's start.
    pub(crate) started: u64,
}

impl Host {
    pub(crate) fn start(orders: &HostOptions) -> Result<Self> {
        let program: PathBuf = std::env::current_exe()?;
        #[expect(clippy::disallowed_methods, reason = "a host in a process of its own is what is killed")]
        let mut command = Command::new(program);
        command.args(orders.arguments()).env("TMPDIR", temporary_dir(&orders.dir));
        let mut child = KillOnDrop(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let pid = child.0.id();
        let stdout = child.0.stdout.take().ok_or("the host has no output")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            // The last one may be cut.
            while stdout.read_line(&mut line).is_ok_and(|read| read > 0) && line.ends_with('\n') {
                let _ = sender.send(line.trim_end().to_owned());
                line.clear();
            }
        });
        let identity = Identity { pid, started: start_of(pid).ok_or("the host has no start")? };
        let names = |keys: &[conjure::journal::SessionKey]| keys.iter().map(write_key).collect();
        let (known, doomed) = (names(&orders.known), names(&orders.doomed));
        Ok(Self { child, identity, known, doomed, lines, words: Vec::new() })
    }

    /// Listens until it has said this, or the time is up. Whether it has said it.
    pub(crate) fn listen(&mut self, until: Deadline, is_it: impl Fn(&LogLine) -> bool) -> Result<bool> {
        loop {
            match self.lines.recv_timeout(SystemClock.remaining(until)) {
                Ok(line) => {
                    let word: LogLine = line.parse()?;
                    let is_over = is_it(&word);
                    self.words.push(word);
                    if is_over {
                        return Ok(true);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("the host ended by itself; it said {:?}", self.words.last()).into());
                }
            }
        }
    }

    /// Has it continue.
    pub(crate) fn send_start(&mut self) -> Result<()> {
        let stdin = self.child.0.stdin.as_mut().ok_or("the host has no input")?;
        Ok(stdin.write_all(b"go\n")?)
    }

    /// Kills it, and takes down all that it had said.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.0.kill()?;
        self.child.0.wait()?;
        self.read_to_end()
    }

    /// Waits for its end, and takes down all that it had said.
    pub(crate) fn end(&mut self) -> Result<()> {
        let status = self.child.0.wait()?;
        if !status.success() {
            return Err(format!("the host ended with {status}").into());
        }
        self.read_to_end()
    }

    fn read_to_end(&mut self) -> Result<()> {
        // The reader hangs up at the end of the pipe.
        while let Ok(line) = self.lines.recv() {
            self.words.push(line.parse()?);
        }
        Ok(())
    }
}

/// When a process began.
fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything; the start is the twentieth field after it.
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

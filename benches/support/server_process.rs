//! `conjure serve` as a process of its own: its memory and its CPU time are the server's alone.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::harness::Result;

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl ServerProcess {
    /// Starts it on a free port, with this data directory and this script.
    pub(crate) async fn start(data: &Path, script: &Path) -> Result<Self> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_conjure"))
            .args(["serve", "--listen", "127.0.0.1:0", "--sandbox", "local", "--data"])
            .arg(data)
            .arg("--script")
            .arg(script)
            .env("HOME", data)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let line = BufReader::new(output).lines().next_line().await?.ok_or("it did not start")?;
        let address = line.strip_prefix("listening on http://").ok_or("it says something else")?.parse()?;
        Ok(Self { child, address })
    }

    /// Ends it in order.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).ok_or("it has ended")?;
        let id = rustix::process::Pid::from_raw(id).ok_or("it has no number")?;
        rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        self.child.wait().await?;
        Ok(())
    }

    fn file(&self, name: &str) -> Result<String> {
        let id = self.child.id().ok_or("it has ended")?;
        Ok(std::fs::read_to_string(format!("/proc/{id}/{name}"))?)
    }

    /// The bytes that it has in memory.
    pub(crate) fn memory(&self) -> Result<u64> {
        self.status("VmRSS:")
    }

    /// The most bytes that it has had in memory.
    pub(crate) fn peak_memory(&self) -> Result<u64> {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> Result<u64> {
        let status = self.file("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
    }

    /// Its CPU time, user and system.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        // Nanoseconds that its threads have run, those that have ended excepted: the runtime keeps its threads.
        let id = self.child.id().ok_or("it has ended")?;
        let mut nanos = 0;
        for thread in std::fs::read_dir(format!("/proc/{id}/task"))? {
            let Ok(stat) = std::fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            nanos += stat.split(' ').next().unwrap_or("0").parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanos))
    }
}

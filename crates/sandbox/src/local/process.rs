//! The guest as a child process, and the folder that goes with it.
//!
//! Dropping it kills the guest and removes the folder. What the guest ran ends with it: its stream has ended by
//! then, and each command's supervisor ends its command when the guest dies.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use futures_util::future::BoxFuture;
use tempfile::TempDir;
use tokio::process::Child;

use crate::connector::SandboxGuard;

/// How much of what the guest complained about goes into an error.
const COMPLAINT: u64 = 1024;

#[derive(Debug)]
pub(super) struct GuestProcess {
    child: Child,
    /// Its standard error, for the reason of its end.
    complaints: File,
    /// Spilled output; removed with the sandbox, after the guest was killed.
    _folder: TempDir,
}

impl GuestProcess {
    pub(super) const fn new(child: Child, complaints: File, folder: TempDir) -> Self {
        Self { child, complaints, _folder: folder }
    }

    fn complaint(&mut self) -> String {
        let mut said = Vec::new();
        let end = self.complaints.seek(SeekFrom::End(0)).unwrap_or(0);
        let start = SeekFrom::Start(end.saturating_sub(COMPLAINT));
        let read = self
            .complaints
            .seek(start)
            .and_then(|_| (&mut self.complaints).take(COMPLAINT).read_to_end(&mut said));
        match read {
            Ok(_) => String::from_utf8_lossy(&said).trim().to_owned(),
            Err(error) => format!("what it said cannot be read: {error}"),
        }
    }
}

impl SandboxGuard for GuestProcess {
    fn ended(&mut self) -> BoxFuture<'_, String> {
        Box::pin(async {
            let how = match self.child.wait().await {
                Ok(status) => describe(status),
                Err(error) => format!("its end cannot be seen: {error}"),
            };
            match self.complaint() {
                complaint if complaint.is_empty() => how,
                complaint => format!("{how}: {complaint}"),
            }
        })
    }

    fn kill(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Err(error) = self.child.kill().await {
                tracing::warn!(%error, "failed to kill the guest");
            }
        })
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

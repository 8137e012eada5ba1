//! Holds a sandbox that is a child process, with the folder of the artifacts that it is given.
//!
//! State: the process and the folder. Both go with the sandbox; after a crash of the host the process ends by itself, and the folder
//! stays where temporary files are.

use std::sync::Arc;

use conjure_guest::protocol::Welcome;
use futures_util::future::BoxFuture;

use crate::connector::SandboxGuard;
use crate::guest_process::GuestProcess;
use crate::isolation::Isolation;
use crate::places::Shelves;
use crate::provision::Provider;

#[derive(Debug)]
pub(super) struct LocalGuard {
    /// Removed before the folder that it lies in, which is the process's.
    pub(super) shelves: Shelves,
    pub(super) process: GuestProcess,
}

impl SandboxGuard for LocalGuard {
    fn greeted(&mut self, welcome: &Welcome) -> Isolation {
        self.process.greeted(welcome)
    }

    fn provider(&self) -> Option<Arc<dyn Provider>> {
        Some(Arc::new(self.shelves.clone()))
    }

    fn ended(&mut self) -> BoxFuture<'_, String> {
        self.process.ended()
    }

    fn kill(&mut self) -> BoxFuture<'_, ()> {
        self.process.kill()
    }

    fn clear(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let shelves = self.shelves.clone();
            match tokio::task::spawn_blocking(move || shelves.remove()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the artifacts of a sandbox are left"),
                Err(error) => tracing::warn!(%error, "the artifacts of a sandbox are left"),
            }
        })
    }
}

impl Drop for LocalGuard {
    /// Who puts something there just now may have the shelves, too.
    fn drop(&mut self) {
        if let Err(error) = self.shelves.remove() {
            tracing::warn!(%error, "the artifacts of a sandbox are left");
        }
    }
}

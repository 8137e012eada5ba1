//! Installs content in a running sandbox, and removes it.

use std::path::PathBuf;

use tokio::sync::MutexGuard;

use super::Sandbox;
use crate::calls::call_options::CallOptions;
use crate::content::{CancelOnDrop, CommitToken, ContentDir, ContentInstaller, ContentItem};
use crate::error::{SandboxError, SandboxErrorKind};
use crate::installed_content::{ContentIdentity, EntryState, Names};

impl Sandbox {
    /// See [`crate::Executor::install_content`].
    pub(crate) async fn install(
        &self,
        item: ContentItem,
        options: CallOptions,
    ) -> Result<PathBuf, SandboxError> {
        let mut names = self.lock_names(&options).await?;
        let key = (item.dir, item.name.clone());
        let identity = ContentIdentity::from_content(&item.content);
        match names.get(&key) {
            Some(EntryState::Installed(known, path)) if *known == identity => return Ok(path.clone()),
            Some(EntryState::Installed(..) | EntryState::Initial) => {
                let message = format!("the sandbox has a `{}` already, which stays as it is", key.1);
                return Err(SandboxError::new(SandboxErrorKind::Exists, message));
            }
            Some(EntryState::Uncertain) => self.remove_now(key.0, &key.1, &options).await?,
            None => {}
        }
        names.insert(key.clone(), EntryState::Uncertain);
        let given = self.install_now(item, options).await;
        match &given {
            Ok(path) => names.insert(key, EntryState::Installed(identity, path.clone())),
            Err(_) => names.remove(&key),
        };
        given
    }

    /// See [`crate::Executor::remove_content`].
    pub(crate) async fn remove(
        &self,
        dir: ContentDir,
        name: &str,
        options: CallOptions,
    ) -> Result<(), SandboxError> {
        let mut names = self.lock_names(&options).await?;
        let key = (dir, name.to_owned());
        let Some(held) = names.remove(&key) else { return Ok(()) };
        names.insert(key.clone(), EntryState::Uncertain);
        let cleared = self.remove_now(dir, name, &options).await;
        match &cleared {
            Ok(()) => names.remove(&key),
            Err(error)
                if matches!(error.kind(), SandboxErrorKind::Cancelled | SandboxErrorKind::TimedOut) =>
            {
                names.insert(key, held)
            }
            Err(_) => None,
        };
        cleared
    }

    /// Waits for other changes of this sandbox to finish.
    async fn lock_names(&self, options: &CallOptions) -> Result<MutexGuard<'_, Names>, SandboxError> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let clock = self.clock();
        tokio::select! {
            biased;
            () = options.cancel.cancelled() => Err(cancelled(CancelReason::Cancelled)),
            names = self.installed().0.lock() => Ok(names),
            () = clock.sleep_until(options.deadline) => Err(cancelled(CancelReason::TimedOut)),
        }
    }

    async fn install_now(&self, item: ContentItem, options: CallOptions) -> Result<PathBuf, SandboxError> {
        #[cfg(feature = "local")]
        if let Some(copier) = self.copier() {
            let path = item.path();
            return copier.install(item, options).await.map(|()| path);
        }
        let content_installer = self.installer()?;
        self.with_commit_token(&options, |token| content_installer.install(item, token)).await
    }

    async fn remove_now(
        &self,
        dir: ContentDir,
        name: &str,
        options: &CallOptions,
    ) -> Result<(), SandboxError> {
        #[cfg(feature = "local")]
        if let Some(copier) = self.copier() {
            return copier.remove(dir, name, options.clone()).await;
        }
        let content_installer = self.installer()?;
        self.with_commit_token(options, |token| content_installer.remove(dir, name.to_owned(), token)).await
    }

    fn installer(&self) -> Result<&dyn ContentInstaller, SandboxError> {
        self.content_installer().ok_or_else(|| {
            let message = "this kind of sandbox takes no content while it runs";
            SandboxError::new(SandboxErrorKind::Unsupported, message)
        })
    }

    /// Runs a change that the caller can cancel until its commit. Cancelling after the commit returns the result of the
    /// change.
    async fn with_commit_token<T>(
        &self,
        options: &CallOptions,
        begin: impl FnOnce(CommitToken) -> futures_util::future::BoxFuture<'static, Result<T, SandboxError>>,
    ) -> Result<T, SandboxError> {
        let token = CommitToken::default();
        let _called_off = CancelOnDrop(token.clone());
        let clock = self.clock();
        let mut done = begin(token.clone());
        let why = tokio::select! {
            biased;
            () = options.cancel.cancelled() => CancelReason::Cancelled,
            done = &mut done => return done,
            () = clock.sleep_until(options.deadline) => CancelReason::TimedOut,
        };
        if token.cancel() {
            return Err(cancelled(why));
        }
        // It is committed: wait for its result.
        done.await
    }
}

/// Why a change was cancelled.
#[derive(Debug, Clone, Copy)]
enum CancelReason {
    Cancelled,
    TimedOut,
}

fn cancelled(why: CancelReason) -> SandboxError {
    match why {
        CancelReason::Cancelled => SandboxError::new(SandboxErrorKind::Cancelled, "it was cancelled"),
        CancelReason::TimedOut => SandboxError::new(SandboxErrorKind::TimedOut, "its time was up"),
    }
}

//! [`InstalledContent`]: the index of the content that one running sandbox has, and the changes to it.
//!
//! Changes run one at a time. A change that breaks off leaves its entry *uncertain*, and the next change of that name
//! removes the entry first. So the index never names content that the sandbox does not have, and the same content is
//! installed once.
//!
//! State: the names and their content, in memory of the sandbox. It ends with the sandbox, as the content directories
//! do.

use std::collections::BTreeMap;
use std::path::PathBuf;

use conjure_base::Digest;
use conjure_store::FileMode;
use tokio::sync::{Mutex, MutexGuard};

use crate::call_options::CallOptions;
use crate::content::{CancelOnDrop, CommitToken, ContentDir, ContentInstaller, ContentItem, ItemContent};
use crate::context::ExecutionContext;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::sandbox::Sandbox;

/// The content of one sandbox by directory and name.
#[derive(Debug)]
pub(crate) struct InstalledContent(Mutex<Names>);

type Names = BTreeMap<(ContentDir, String), EntryState>;

/// The state of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum EntryState {
    /// The sandbox was created with it.
    Initial,
    /// It was installed while the sandbox runs, at this path.
    Installed(ContentIdentity, PathBuf),
    /// A change of it was interrupted.
    Uncertain,
}

/// Identifies content independently of its store.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ContentIdentity {
    File(Digest, FileMode),
    Tree(Digest),
}

impl ContentIdentity {
    fn from_content(content: &ItemContent) -> Self {
        match content {
            ItemContent::File { digest, variant } => Self::File(*digest, *variant),
            ItemContent::Tree(tree) => Self::Tree(*tree.digest()),
        }
    }
}

impl InstalledContent {
    /// The index of a sandbox that is created for this context.
    pub(crate) fn for_context(context: &ExecutionContext) -> Self {
        let named = |target: &PathBuf| {
            let dir = ContentDir::ALL.into_iter().find(|dir| target.parent() == Some(dir.path().as_ref()))?;
            Some((dir, target.file_name()?.to_str()?.to_owned()))
        };
        let names = context.read_only.iter().filter_map(|shared| named(&shared.target));
        Self(Mutex::new(names.map(|name| (name, EntryState::Initial)).collect()))
    }
}

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
            return copier.install(self, item, options).await.map(|()| path);
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
            return copier.remove(self, dir, name, options.clone()).await;
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

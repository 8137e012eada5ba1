//! Hard links that pin the contents of sessions' artifacts in the tenant's store. The store removes a content only if
//! it has no such link and was not used for a month.
//!
//! ```text
//! <tenant>/artifacts/SESSION/EPOCH/DIGEST    one link for each content
//! ```
//!
//! Each incarnation of a session has a directory of its own, named after the epoch of its lease. A process may lose the
//! lease without noticing, or leave work on a thread. It then removes no link of its successor.
//!
//! State: these links.
//!
//! - A content is linked before the session's record names it. Its link is removed after the record no longer names it.
//!   So a crash leaves too many links, and never too few.
//! - The next incarnation links what the record names, and then removes the links of earlier incarnations.
//! - For a passivated session, the janitor removes links that its record does not name. It does so once the session's
//!   artifacts have expired (`maintenance/expire_artifacts.rs`).
//! - All links are removed with the session.
//!
//! Where a hard link is not possible, the pin is a copy. If the store has lost the content, it is restored from the
//! copy. Sessions in memory have no links, since they end with the process.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_actors::artifacts::ContentPinner;
use conjure_actors::supervision::Failure;
use conjure_artifact::ArtifactError;
use conjure_base::{Digest, SessionId};
use conjure_conversation::ArtifactContent;
use conjure_fs::{ensure_dir, ignore_absent, run_blocking};
use conjure_journal::Epoch;
use conjure_store::{FileMode, Store, StoreError, StoreErrorKind};
use futures_util::future::BoxFuture;

use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;

/// How often the creation of a directory is tried again because its parent was removed meanwhile.
const RACES: u32 = 8;

/// The directory of the links of a session's artifacts.
fn dir_of(tenant: &Path, session: SessionId) -> PathBuf {
    tenant.join("artifacts").join(session.stored_name())
}

/// Removes all links of a session that is deleted. Blocks.
pub(crate) fn remove_pins(home: &TenantDir, session: SessionId) -> Result<(), RuntimeError> {
    let dir = dir_of(home.data.path(), session);
    let removed = ignore_absent(fs::remove_dir_all(&dir));
    removed.map(drop).map_err(|error| RuntimeError::data(&dir, &error))
}

/// The sessions of a tenant that have links, in order. Blocks.
pub(crate) fn pinned_sessions(tenant: &Path) -> Result<Vec<SessionId>, RuntimeError> {
    let dir = tenant.join("artifacts");
    let names = names_in(&dir).map_err(|error| RuntimeError::data(&dir, &error))?;
    let mut sessions: Vec<SessionId> = names.iter().filter_map(|name| name.parse().ok()).collect();
    sessions.sort_unstable();
    Ok(sessions)
}

/// Removes the links of a session's incarnations before this epoch, except the wanted ones, and the directories that become
/// empty. Blocks.
///
/// Returns the contents that were unpinned, without those whose pin was a copy. For a copy it is not known whether
/// other sessions pin the content, too.
pub(crate) fn unpin(
    tenant: &Path,
    session: SessionId,
    epoch: Epoch,
    wanted: &BTreeSet<String>,
) -> Result<Vec<Digest>, RuntimeError> {
    let dir = dir_of(tenant, session);
    let unpinned = remove_links(&dir, epoch, wanted);
    unpinned.map_err(|error| RuntimeError::data(&dir, &error))
}

fn remove_links(dir: &Path, epoch: Epoch, wanted: &BTreeSet<String>) -> Result<Vec<Digest>, StoreError> {
    let mut unpinned = Vec::new();
    for incarnation in before(dir, epoch)? {
        if !incarnation.is_dir() {
            removed(&incarnation, |path| fs::remove_file(path))?;
            continue;
        }
        for name in names_in(&incarnation)? {
            let path = incarnation.join(&name);
            if wanted.contains(&name) {
                continue;
            }
            let is_link = path.symlink_metadata().is_ok_and(|link| link.nlink() > 1);
            removed(&path, |path| fs::remove_file(path))?;
            unpinned.extend(format!("sha256:{name}").parse::<Digest>().ok().filter(|_| is_link));
        }
        remove_empty(&incarnation)?;
    }
    remove_empty(dir)?;
    Ok(unpinned)
}

/// Removes a directory if it is empty.
fn remove_empty(dir: &Path) -> Result<(), StoreError> {
    match fs::remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        done => removed(dir, |_| done),
    }
}

/// The entries of a session's directory, without the directories of this epoch and later ones.
fn before(dir: &Path, epoch: Epoch) -> Result<Vec<PathBuf>, StoreError> {
    let mut names = names_in(dir)?;
    names.retain(|name| name.parse().map_or(true, |of: u64| of < epoch.number()));
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

/// The links of one session.
#[derive(Debug, Clone)]
pub(crate) struct ArtifactPins {
    store: Store,
    dir: PathBuf,
    _guard: Option<Arc<dyn Any + Send + Sync>>,
}

impl ArtifactPins {
    /// The links of a session of the tenant that this store belongs to.
    pub(crate) fn new(tenant: &Path, session: SessionId, store: Store) -> Self {
        Self { store, dir: dir_of(tenant, session), _guard: None }
    }

    /// Keeps the guard alive while contents may be linked. It keeps the store open.
    pub(crate) fn with_guard(mut self, guard: Arc<dyn Any + Send + Sync>) -> Self {
        self._guard = Some(guard);
        self
    }

    /// The directory of one incarnation.
    fn current_epoch_dir(&self, epoch: Epoch) -> PathBuf {
        self.dir.join(epoch.to_string())
    }

    /// Adds one link. Blocks.
    fn link(&self, epoch: Epoch, content: &ArtifactContent) -> Result<(), StoreError> {
        let dir = self.dir.display();
        tracing::trace!(%dir, digest = %content.digest, "the content of an artifact is being linked");
        let own = EpochDir::make(self.current_epoch_dir(epoch))?;
        own.link(&self.store, &content.digest)?;
        own.sync()?;
        tracing::trace!(%dir, digest = %content.digest, "the content of an artifact is linked");
        Ok(())
    }

    /// Makes the links of this epoch exactly these, and removes those of earlier epochs. Blocks.
    fn sync(&self, epoch: Epoch, contents: &[ArtifactContent]) -> Result<(), StoreError> {
        let (dir, path) = (self.dir.display(), self.current_epoch_dir(epoch));
        tracing::trace!(%dir, contents = contents.len(), "the contents of artifacts are being put in order");
        let named = |content: &ArtifactContent| (content.digest.to_hex(), content.digest);
        let mut wanted: BTreeMap<String, Digest> = contents.iter().map(named).collect();
        for name in names_in(&path)? {
            if wanted.remove(&name).is_none() {
                removed(&path.join(name), |path| fs::remove_file(path))?;
            }
        }
        let before = before(&self.dir, epoch)?;
        if !wanted.is_empty() {
            let own = EpochDir::make(path.clone())?;
            for digest in wanted.values() {
                let mut linked = own.link(&self.store, digest);
                if matches!(linked, Err(StoreError::NotFound { .. })) && self.restore(digest, &before)? {
                    linked = own.link(&self.store, digest);
                }
                match linked {
                    // A later use of the artifact returns an error.
                    Err(error) if is_loss(&error) => {
                        tracing::warn!(%dir, %error, "the content of an artifact is missing");
                    }
                    linked => linked?,
                }
            }
            own.sync()?;
        }
        tracing::trace!(%dir, contents = contents.len(), "the contents of artifacts are linked");
        if contents.is_empty() {
            removed(&path, |path| fs::remove_dir(path))?;
        }
        for path in before {
            let is_dir = path.is_dir();
            removed(&path, |path| if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) })?;
        }
        Ok(())
    }

    /// Restores a content into the store from an earlier incarnation's copy. Returns whether there was one.
    fn restore(&self, digest: &Digest, before: &[PathBuf]) -> Result<bool, StoreError> {
        for dir in before.iter().filter(|path| path.is_dir()) {
            match self.store.insert_file(&dir.join(digest.to_hex()), FileMode::Plain, u64::MAX) {
                Ok(inserted) if inserted.digest == *digest => return Ok(true),
                Ok(_) => {}
                Err(error) if is_loss(&error) => {}
                // The copy stays for the next attempt.
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// The existing directory of one incarnation.
struct EpochDir {
    path: PathBuf,
    opened: File,
}

impl EpochDir {
    fn make(path: PathBuf) -> Result<Self, StoreError> {
        let make = || ensure_dir(&path).and_then(|()| File::open(&path));
        let mut made = make();
        // The janitor may remove the parent directory while it is empty. It does so only once, because after that it sees
        // the new directory.
        for _ in 0..RACES {
            match made {
                Err(ref error) if error.kind() == io::ErrorKind::NotFound => made = make(),
                _ => break,
            }
        }
        match made {
            Ok(opened) => Ok(Self { path, opened }),
            Err(error) => Err(failed("make", &path, error)),
        }
    }

    /// Links this content in the variant that the store has: plain or executable.
    fn link(&self, store: &Store, digest: &Digest) -> Result<(), StoreError> {
        let name = digest.to_hex();
        for variant in [FileMode::Plain, FileMode::Executable] {
            match store.link_into(digest, variant, &self.opened, Path::new(&name)) {
                Err(StoreError::NotFound { .. }) => {}
                Err(error) if error.kind() == StoreErrorKind::Exists => return Ok(()),
                linked => return linked.map(drop),
            }
        }
        Err(StoreError::NotFound { digest: *digest })
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.opened.sync_all().map_err(|error| failed("write", &self.path, error))
    }
}

impl ContentPinner for ArtifactPins {
    fn pin(&self, epoch: Epoch, content: ArtifactContent) -> BoxFuture<'_, Result<(), ArtifactError>> {
        let pins = self.clone();
        Box::pin(async move { Ok(blocking(self, move || pins.link(epoch, &content)).await?) })
    }

    fn retain(&self, epoch: Epoch, contents: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>> {
        let pins = self.clone();
        Box::pin(async move { Ok(blocking(self, move || pins.sync(epoch, &contents)).await?) })
    }
}

async fn blocking(
    pins: &ArtifactPins,
    work: impl FnOnce() -> Result<(), StoreError> + Send + 'static,
) -> Result<(), StoreError> {
    let done = run_blocking(work).await;
    done.unwrap_or_else(|error| Err(failed("write", &pins.dir, io::Error::other(error))))
}

/// Whether a content is missing or damaged.
fn is_loss(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::NotFound | StoreErrorKind::Corrupt)
}

/// The names in a directory; empty if there is no directory.
fn names_in(dir: &Path) -> Result<Vec<String>, StoreError> {
    conjure_fs::names_in(dir).map_err(|error| failed("read", dir, error))
}

fn removed(path: &Path, remove: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), StoreError> {
    ignore_absent(remove(path)).map(drop).map_err(|error| failed("remove", path, error))
}

fn failed(doing: &'static str, path: &Path, error: io::Error) -> StoreError {
    let path = path.to_owned();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StoreError::NoSpace { operation: doing, path }
        }
        io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly { operation: doing, path },
        _ => StoreError::Io { operation: doing, path, source: error },
    }
}

#[cfg(test)]
mod tests;

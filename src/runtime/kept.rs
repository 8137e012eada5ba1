//! How the bytes of sessions' artifacts stay for as long as the sessions have them: by links to contents of the tenant's store, which
//! removes only what nobody links to and nobody used for a month.
//!
//! ```text
//! <tenant>/artifacts/SESSION/EPOCH/DIGEST    one link for each content
//! ```
//!
//! Each incarnation of a session has a folder of its own, named after the epoch of its lease: whoever was taken over and does not know it
//! yet, or left work behind on a thread, removes nothing that a successor has linked.
//!
//! State: these links. A content is linked before it is recorded that the session has it, and its link goes after it is recorded that the
//! session does not have it any more: a crash leaves links that nobody needs, and never too few. The next incarnation links what the record
//! names, and then removes what was there before it; of a session that is put away the janitor removes what its record does not name, once
//! its artifacts have expired by their time (`chores/artifacts.rs`); all go with the session. Where a link cannot be, there is a copy, and a content that the
//! store has lost is put back from it. Sessions in memory have none of this: they do not live so long.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_actors::artifacts::ContentKeeper;
use conjure_actors::supervision::Failure;
use conjure_artifact::ArtifactError;
use conjure_base::{Digest, SessionId};
use conjure_conversation::ArtifactContent;
use conjure_journal::Epoch;
use conjure_store::{Store, StoreError, StoreErrorKind, Variant};
use futures_util::future::BoxFuture;

use super::error::RuntimeError;
use super::home::TenantHome;

/// How often a folder is made anew that goes while it is made.
const RACES: u32 = 8;

/// Where the contents of a session's artifacts are kept.
fn folder_of(tenant: &Path, session: SessionId) -> PathBuf {
    tenant.join("artifacts").join(session.to_string())
}

/// Lets go of the contents of a session that is deleted. Blocks.
pub(crate) fn remove_kept(home: &TenantHome, session: SessionId) -> Result<(), RuntimeError> {
    let folder = folder_of(home.data.path(), session);
    let removed = unless_absent(fs::remove_dir_all(&folder));
    removed.map(drop).map_err(|error| RuntimeError::data(&folder, &error))
}

/// The sessions of a tenant of which contents are kept, in order. Blocks.
pub(crate) fn kept_sessions(tenant: &Path) -> Result<Vec<SessionId>, RuntimeError> {
    let folder = tenant.join("artifacts");
    let names = names_in(&folder).map_err(|error| RuntimeError::data(&folder, &error))?;
    let mut sessions: Vec<SessionId> = names.iter().filter_map(|name| name.parse().ok()).collect();
    sessions.sort_unstable();
    Ok(sessions)
}

/// Removes the links that incarnations of a session have which were before this epoch, but for those that are wanted, and folders that
/// are empty then. Which contents were let go of: of a copy, nobody knows whether somebody else has one. Blocks.
pub(crate) fn let_go(
    tenant: &Path,
    session: SessionId,
    epoch: Epoch,
    wanted: &BTreeSet<String>,
) -> Result<Vec<Digest>, RuntimeError> {
    let folder = folder_of(tenant, session);
    let gone = remove_links(&folder, epoch, wanted);
    gone.map_err(|error| RuntimeError::data(&folder, &error))
}

fn remove_links(folder: &Path, epoch: Epoch, wanted: &BTreeSet<String>) -> Result<Vec<Digest>, StoreError> {
    let mut let_go = Vec::new();
    for incarnation in before(folder, epoch)? {
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
            let_go.extend(format!("sha256:{name}").parse::<Digest>().ok().filter(|_| is_link));
        }
        remove_empty(&incarnation)?;
    }
    remove_empty(folder)?;
    Ok(let_go)
}

/// Removes a folder in which there is nothing.
fn remove_empty(folder: &Path) -> Result<(), StoreError> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        done => removed(folder, |_| done),
    }
}

/// What lies in a session's folder and is of no incarnation of this epoch or a later one.
fn before(folder: &Path, epoch: Epoch) -> Result<Vec<PathBuf>, StoreError> {
    let mut names = names_in(folder)?;
    names.retain(|name| name.parse().map_or(true, |of: u64| of < epoch.number()));
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// The links of one session.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    store: Store,
    folder: PathBuf,
    _held: Option<Arc<dyn Any + Send + Sync>>,
}

impl Kept {
    /// Those of a session of the tenant that this store is of.
    pub(crate) fn of(tenant: &Path, session: SessionId, store: Store) -> Self {
        Self { store, folder: folder_of(tenant, session), _held: None }
    }

    /// Keeps this for as long as contents may be kept: what the store is open with.
    pub(crate) fn holding(mut self, held: Arc<dyn Any + Send + Sync>) -> Self {
        self._held = Some(held);
        self
    }

    /// The folder of one incarnation.
    fn own(&self, epoch: Epoch) -> PathBuf {
        self.folder.join(epoch.to_string())
    }

    /// Has this link, too. Blocks.
    fn link(&self, epoch: Epoch, content: &ArtifactContent) -> Result<(), StoreError> {
        let folder = self.folder.display();
        tracing::trace!(%folder, digest = %content.digest, "the content of an artifact is being linked");
        let own = Own::make(self.own(epoch))?;
        own.link(&self.store, &content.digest)?;
        own.sync()?;
        tracing::trace!(%folder, digest = %content.digest, "the content of an artifact is linked");
        Ok(())
    }

    /// Has these links, and no others but those of a later incarnation. Blocks.
    fn put_in_order(&self, epoch: Epoch, contents: &[ArtifactContent]) -> Result<(), StoreError> {
        let (folder, path) = (self.folder.display(), self.own(epoch));
        tracing::trace!(%folder, contents = contents.len(), "the contents of artifacts are being put in order");
        let named = |content: &ArtifactContent| (content.digest.to_hex(), content.digest);
        let mut wanted: BTreeMap<String, Digest> = contents.iter().map(named).collect();
        for name in names_in(&path)? {
            if wanted.remove(&name).is_none() {
                removed(&path.join(name), |path| fs::remove_file(path))?;
            }
        }
        let before = before(&self.folder, epoch)?;
        if !wanted.is_empty() {
            let own = Own::make(path.clone())?;
            for digest in wanted.values() {
                let mut linked = own.link(&self.store, digest);
                if matches!(linked, Err(StoreError::Absent { .. })) && self.put_back(digest, &before)? {
                    linked = own.link(&self.store, digest);
                }
                match linked {
                    // Whoever wants it is told.
                    Err(error) if is_loss(&error) => {
                        tracing::warn!(%folder, %error, "the content of an artifact is lost");
                    }
                    linked => linked?,
                }
            }
            own.sync()?;
        }
        tracing::trace!(%folder, contents = contents.len(), "the contents of artifacts are linked");
        if contents.is_empty() {
            removed(&path, |path| fs::remove_dir(path))?;
        }
        for path in before {
            let is_folder = path.is_dir();
            removed(&path, |path| if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) })?;
        }
        Ok(())
    }

    /// Puts a content back into the store that only an earlier incarnation has. Whether there was one.
    fn put_back(&self, digest: &Digest, before: &[PathBuf]) -> Result<bool, StoreError> {
        for folder in before.iter().filter(|path| path.is_dir()) {
            match self.store.insert_file(&folder.join(digest.to_hex()), Variant::Plain, u64::MAX) {
                Ok(inserted) if inserted.digest == *digest => return Ok(true),
                Ok(_) => {}
                Err(error) if is_loss(&error) => {}
                // It is still there, for the next time.
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// The folder of one incarnation, which is there.
struct Own {
    path: PathBuf,
    opened: File,
}

impl Own {
    fn make(path: PathBuf) -> Result<Self, StoreError> {
        let make =
            || DirBuilder::new().recursive(true).mode(0o700).create(&path).and_then(|()| File::open(&path));
        let mut made = make();
        // A janitor removes the folder above while it is empty: it has no other reason to, so it has seen this one by then.
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

    /// Has a link to this content, in whichever variant the store has it.
    fn link(&self, store: &Store, digest: &Digest) -> Result<(), StoreError> {
        let name = digest.to_hex();
        for variant in [Variant::Plain, Variant::Executable] {
            match store.link_into(digest, variant, &self.opened, Path::new(&name)) {
                Err(StoreError::Absent { .. }) => {}
                Err(error) if error.kind() == StoreErrorKind::Exists => return Ok(()),
                linked => return linked.map(drop),
            }
        }
        Err(StoreError::Absent { digest: *digest })
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.opened.sync_all().map_err(|error| failed("write", &self.path, error))
    }
}

impl ContentKeeper for Kept {
    fn hold(&self, epoch: Epoch, content: ArtifactContent) -> BoxFuture<'_, Result<(), ArtifactError>> {
        let kept = self.clone();
        Box::pin(async move { Ok(blocking(self, move || kept.link(epoch, &content)).await?) })
    }

    fn keep(&self, epoch: Epoch, contents: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>> {
        let kept = self.clone();
        Box::pin(async move { Ok(blocking(self, move || kept.put_in_order(epoch, &contents)).await?) })
    }
}

async fn blocking(
    kept: &Kept,
    work: impl FnOnce() -> Result<(), StoreError> + Send + 'static,
) -> Result<(), StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(failed("write", &kept.folder, io::Error::other(error))))
}

/// Whether a content is not there any more, or not as it was.
fn is_loss(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::NotFound | StoreErrorKind::Corrupt)
}

/// The names in a folder; none where there is no folder.
fn names_in(folder: &Path) -> Result<Vec<String>, StoreError> {
    let entries = match unless_absent(fs::read_dir(folder)) {
        Ok(entries) => entries.into_iter().flatten(),
        Err(error) => return Err(failed("read", folder, error)),
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect::<io::Result<_>>().map_err(|error| failed("read", folder, error))
}

fn removed(path: &Path, remove: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), StoreError> {
    unless_absent(remove(path)).map(drop).map_err(|error| failed("remove", path, error))
}

/// What is not there is nobody's failure.
fn unless_absent<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

fn failed(doing: &'static str, path: &Path, error: io::Error) -> StoreError {
    let path = path.to_owned();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::NoSpace { doing, path },
        io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly { doing, path },
        _ => StoreError::Io { doing, path, source: error },
    }
}

#[cfg(test)]
mod tests;

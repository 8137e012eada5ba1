//! What the sessions of a runtime are given, by name: with what their artifacts are taken in and found, and how their bytes are kept.
//!
//! State: `<tenant>/artifacts/SESSION/DIGEST`, links to contents of the tenant's store, one for each content that the session's record
//! names: the store removes only what nobody links to and nobody used for a month. A crash leaves too many links or too few for a
//! moment: they are put in order when the session is revived, and go with it. Where a link cannot be, the content is copied. Sessions in
//! memory have none: they do not live so long.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_actors::artifacts::{ArtifactParts, ContentKeeper};
use conjure_actors::supervision::Failure;
use conjure_artifact::{ArtifactOptions, Fetch, Intake, Resolver};
use conjure_base::SessionId;
use conjure_conversation::ArtifactContent;
use conjure_journal::SessionKey;
use conjure_skill::Skill;
use conjure_store::{Store, StoreErrorKind, Variant};
use futures_util::future::BoxFuture;

use super::error::RuntimeError;
use super::home::TenantHome;
use super::options::Record;
use super::outfit::blocking;
use crate::config::Config;

/// What all sessions of a runtime have artifacts with.
#[derive(Clone)]
pub(crate) struct ArtifactDesk {
    options: Arc<ArtifactOptions>,
    fetch: Option<Arc<dyn Fetch>>,
}

impl ArtifactDesk {
    /// As the configuration says; none where sessions have no artifacts. The host may have a way out of its own.
    pub(crate) fn of(config: &Config, own: Option<Arc<dyn Fetch>>) -> Result<Option<Self>, RuntimeError> {
        let Some(options) = config.artifacts() else { return Ok(None) };
        let options = Arc::new(options);
        let fetch = match own {
            Some(own) => Some(own),
            None => fetch_of(&options)?,
        };
        Ok(Some(Self { options, fetch }))
    }

    /// The parts of one session.
    pub(crate) fn parts(
        &self,
        key: &SessionKey,
        home: &TenantHome,
        record: Record,
        skills: Vec<Arc<Skill>>,
    ) -> ArtifactParts {
        let store = home.data.store().clone();
        let resolver = Resolver::new(key.tenant.clone(), store.clone(), Arc::clone(&self.options));
        let resolver = match &self.fetch {
            Some(fetch) => resolver.with_fetch(Arc::clone(fetch)),
            None => resolver,
        };
        let keeper: Arc<dyn ContentKeeper> = match record {
            Record::OnDisk => Arc::new(Kept {
                store,
                folder: folder_of(home.data.path(), key.session),
                session: key.session,
            }),
            Record::InMemory => Arc::new(()),
        };
        let intake = Intake::new(Arc::clone(&self.options));
        ArtifactParts { intake, resolver: resolver.with_skills(skills), keeper }
    }
}

#[cfg(feature = "fetch")]
fn fetch_of(options: &Arc<ArtifactOptions>) -> Result<Option<Arc<dyn Fetch>>, RuntimeError> {
    use conjure_egress::{Egress, Policy};
    // The network of sandboxes is another matter: what is fetched here is asked for by reference, and checked at every hop.
    let way_out = Egress::new(Policy::Full);
    let fetch =
        conjure_artifact::HttpFetch::new(Arc::clone(options), way_out, Arc::new(conjure_base::SystemClock));
    match fetch {
        Ok(fetch) => Ok(Some(Arc::new(fetch))),
        Err(error) => Err(RuntimeError::Fetch { reason: error.to_string() }),
    }
}

#[cfg(not(feature = "fetch"))]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it may fail")]
fn fetch_of(_: &Arc<ArtifactOptions>) -> Result<Option<Arc<dyn Fetch>>, RuntimeError> {
    Ok(None)
}

/// Where the contents of a session's artifacts are kept.
fn folder_of(tenant: &Path, session: SessionId) -> PathBuf {
    tenant.join("artifacts").join(session.to_string())
}

/// Lets go of the contents of a session that is deleted. Blocks.
pub(crate) fn remove_kept(home: &TenantHome, session: SessionId) -> Result<(), RuntimeError> {
    let folder = folder_of(home.data.path(), session);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RuntimeError::data(&folder, &error)),
        _ => Ok(()),
    }
}

/// Links to the contents of one session.
struct Kept {
    store: Store,
    folder: PathBuf,
    session: SessionId,
}

impl ContentKeeper for Kept {
    fn keep(&self, contents: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>> {
        let (store, folder) = (self.store.clone(), self.folder.clone());
        Box::pin(async move {
            tracing::debug!(session = %self.session, contents = contents.len(), "the contents of artifacts are kept");
            let keeping = move || Ok(keep(&store, &folder, &contents));
            blocking("the keeping of artifacts", keeping).await?.map_err(|error| error.to_string().into())
        })
    }
}

/// Has these links in the folder, and no others. Blocks.
fn keep(store: &Store, folder: &Path, contents: &[ArtifactContent]) -> io::Result<()> {
    if contents.is_empty() {
        return match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut wanted: BTreeSet<String> = contents.iter().map(|content| content.digest.to_hex()).collect();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(|name| wanted.remove(name)) {
            fs::remove_file(entry.path())?;
        }
    }
    let opened = File::open(folder)?;
    for content in contents.iter().filter(|content| wanted.contains(&content.digest.to_hex())) {
        let name = content.digest.to_hex();
        for variant in [Variant::Plain, Variant::Executable] {
            match store.link_into(&content.digest, variant, &opened, Path::new(&name)) {
                Ok(_) => break,
                Err(error) if error.kind() == StoreErrorKind::Exists => break,
                // In the other variant, or not any more: whoever wants it is told.
                Err(error) if error.kind() == StoreErrorKind::NotFound => {}
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
    opened.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use conjure_base::Timestamp;

    use super::*;

    #[test]
    fn contents_that_a_session_names_are_never_collected_and_others_are() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("store")).unwrap();
        let content = |text: &str| {
            let inserted = store.insert_bytes(text.as_bytes(), Variant::Plain).unwrap();
            ArtifactContent { digest: inserted.digest, size: inserted.size }
        };
        let (a, b) = (content("a"), content("b"));
        let kept = folder.path().join("artifacts/ses_1");
        let links = || fs::read_dir(&kept).map(Iterator::count).unwrap_or(0);
        let collect = || {
            let linked = store.linked().unwrap();
            store.collect(|digest| linked.contains(digest), Timestamp::from_millis(u64::MAX)).unwrap().removed
        };
        for _ in 0..2 {
            keep(&store, &kept, &[a.clone(), b.clone(), a.clone()]).unwrap();
            assert_eq!(links(), 2);
        }
        assert_eq!(fs::metadata(kept.join(a.digest.to_hex())).unwrap().nlink(), 2);
        assert_eq!(collect(), 0);
        keep(&store, &kept, std::slice::from_ref(&b)).unwrap();
        assert_eq!((links(), collect()), (1, 1));
        // What is lost is left out: the next use says so.
        keep(&store, &kept, &[a, b]).unwrap();
        assert_eq!(links(), 1);
        keep(&store, &kept, &[]).unwrap();
        assert!(!kept.exists());
        assert_eq!(collect(), 1);
    }
}

//! Journals to test with.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{SessionId, TenantId};
use conjure_journal::conformance::{CaseError, JournalFixture, RecordsFixture, RecordsUnderTest};
use conjure_journal::{Journal, MemoryJournal, NewEvent, SessionKey, SqliteJournal, SqliteOptions};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tempfile::TempDir;

/// Options for tests on a loaded machine: short waits, and long timeouts.
pub(crate) fn options() -> SqliteOptions {
    SqliteOptions { busy_timeout: Duration::from_secs(60), ..SqliteOptions::default() }
}

/// A journal in memory, opened any number of times.
#[derive(Default)]
pub(crate) struct InMemory(MemoryJournal);

impl JournalFixture for InMemory {
    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Journal>, CaseError>> {
        std::future::ready(Ok(Arc::new(self.0.clone()) as Arc<dyn Journal>)).boxed()
    }
}

/// A journal in a directory, opened any number of times, each with threads of its own.
pub(crate) struct OnDisk {
    dir: TempDir,
    pub(crate) options: SqliteOptions,
}

impl OnDisk {
    pub(crate) fn new() -> Self {
        Self::with(options())
    }

    pub(crate) fn with(options: SqliteOptions) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), options }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.dir().join("journal.sqlite")
    }

    pub(crate) fn journal(&self) -> SqliteJournal {
        SqliteJournal::open(&self.dir(), self.options.clone()).unwrap()
    }
}

impl JournalFixture for OnDisk {
    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Journal>, CaseError>> {
        let opened = SqliteJournal::open(&self.dir(), self.options.clone());
        std::future::ready(match opened {
            Ok(journal) => Ok(Arc::new(journal) as Arc<dyn Journal>),
            Err(error) => Err(error.into()),
        })
        .boxed()
    }
}

impl RecordsFixture for InMemory {
    fn open(&self) -> BoxFuture<'_, Result<RecordsUnderTest, CaseError>> {
        let (records, journal) = (self.0.records(), Arc::new(self.0.clone()));
        std::future::ready(Ok(RecordsUnderTest { records, journal })).boxed()
    }
}

impl RecordsFixture for OnDisk {
    fn open(&self) -> BoxFuture<'_, Result<RecordsUnderTest, CaseError>> {
        let opened = SqliteJournal::open(&self.dir(), self.options.clone());
        let opened = opened.map(Arc::new).map_err(CaseError::from);
        let opened = opened.map(|both| RecordsUnderTest { records: both.clone(), journal: both });
        std::future::ready(opened).boxed()
    }
}

pub(crate) fn key(tenant: &str, number: u128) -> SessionKey {
    SessionKey::new(TenantId::new(tenant).unwrap(), SessionId::from_bits(number))
}

pub(crate) fn note(text: &str) -> Vec<NewEvent> {
    vec![NewEvent::new("note", 1, text.as_bytes().to_vec())]
}

/// The number of files below a directory whose path contains `part`.
pub(crate) fn files(dir: &Path, part: &str) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let entries = entries.map(|entry| entry.unwrap().path());
    entries
        .map(|path| match path.is_dir() {
            true => files(&path, part),
            false => usize::from(path.to_str().unwrap().contains(part)),
        })
        .sum()
}

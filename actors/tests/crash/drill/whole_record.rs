//! What is recorded of all sessions, read while no host runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use conjure_journal::{Journal as _, SessionKey, SqliteJournal, SqliteOptions, load_all};
use tokio::runtime::Runtime;

use super::Result;
use super::findings::Findings;
use super::host::journal_folder;
use super::record::Record;
use super::words::{Word, write_key};

pub(crate) struct WholeRecord {
    folder: PathBuf,
    runtime: Runtime,
    records: BTreeMap<String, Record>,
}

/// Of which sessions the record is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What is new of these that a host may have written.
    New,
    /// Everything once more.
    Everything,
}

impl WholeRecord {
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { folder: folder.to_owned(), runtime, records: BTreeMap::new() })
    }

    /// Reads what is recorded, and compares it with what the host said before it ended.
    pub(crate) fn check(
        &mut self,
        busy: &[SessionKey],
        words: &[Word],
        extent: Extent,
        findings: &mut Findings,
    ) -> Result<()> {
        // A host that was killed at once has made none.
        if !journal_folder(&self.folder).exists() {
            return Ok(());
        }
        let Self { folder, runtime, records } = self;
        runtime.block_on(async {
            let journal = SqliteJournal::open(&journal_folder(folder), SqliteOptions::default())?;
            for key in busy {
                let record = records.entry(write_key(key)).or_insert_with(|| Record::new(key.clone()));
                match load_all(&journal, key, record.known()).await {
                    Ok(events) => record.read(&events, findings)?,
                    Err(error) => findings.lost.push(format!("{key}: {error}")),
                }
                record.check_next_request(findings);
                record.check_effects(folder, findings);
            }
            if extent == Extent::Everything {
                for (name, record) in records.iter() {
                    let key = super::words::read_key(name)?;
                    record.check_whole(&load_all(&journal, &key, 0).await?, findings);
                }
                journal.sweep().await?;
            }
            journal.close().await;
            Result::Ok(())
        })?;
        for word in words {
            if let Some(record) = word.session().and_then(|key| self.records.get(&write_key(key))) {
                findings.tally.acknowledged += 1;
                record.check_word(word, findings);
            }
        }
        Ok(())
    }

    /// Everything is over.
    pub(crate) fn check_settled(&self, findings: &mut Findings) {
        findings.tally.sessions = self.records.len();
        findings.tally.effects = 0;
        for record in self.records.values() {
            record.check_settled(findings);
            findings.tally.effects += record.check_effects(&self.folder, findings);
        }
    }
}

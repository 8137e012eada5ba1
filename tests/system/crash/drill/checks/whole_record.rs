//! The recorded events of all sessions, compared with the log lines of the hosts; and the session files in the data directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use conjure::TenantId;
use conjure::artifact::Digest;
use conjure::journal::{JournalErrorKind, SessionKey, SqliteOptions};
use conjure_journal::{Journal as _, SqliteJournal, read_all};
use tokio::runtime::Runtime;

use crate::drill::Result;
use crate::drill::checks::dirs::{entries, holding, name_of};
use crate::drill::checks::findings::Findings;
use crate::drill::checks::record::Record;
use crate::drill::fixture::{SECRET, TENANTS, data_dir, journal_dir, place, tenant_dir};
use crate::drill::log_lines::{LogLine, write_key};

pub(crate) struct WholeRecord {
    dir: PathBuf,
    runtime: Runtime,
    records: BTreeMap<String, Record>,
}

type Keys = BTreeMap<String, SessionKey>;

impl WholeRecord {
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { dir: dir.to_owned(), runtime, records: BTreeMap::new() })
    }

    /// Reads what is new of the sessions that a host had, and compares it with what the host said before it ended.
    pub(crate) fn check(
        &mut self,
        had: &Keys,
        doomed: &Keys,
        deleted: &Keys,
        words: &[LogLine],
        findings: &mut Findings,
    ) -> Result<()> {
        // A host that was killed at once has made none.
        if !journal_dir(&self.dir).exists() {
            return Ok(());
        }
        let Self { dir, runtime, records } = self;
        runtime.block_on(async {
            let journal = open(dir)?;
            for (name, key) in had.iter().chain(doomed) {
                let record = records.entry(name.clone()).or_insert_with(|| Record::new(key.clone()));
                match read_all(&journal, key, record.known()).await {
                    Ok(events) => record.read(&events, findings)?,
                    // It is unknown whether the deletion had completed when the host died.
                    Err(error) if error.kind() == JournalErrorKind::NotFound && doomed.contains_key(name) => {
                        records.remove(name);
                        continue;
                    }
                    Err(error) => findings.lost.push(format!("{key}: {error}")),
                }
                record.check_next_request(findings);
                record.check_effects(dir, findings);
            }
            for (name, key) in deleted {
                records.remove(name);
                findings.tally.deleted += 1;
                if let Ok(info) = journal.session(key).await {
                    let events = info.events;
                    findings.lost.push(format!("{key}: it was deleted, and {events} events are there"));
                }
                if place(dir, key).exists() {
                    findings.leftover.push(format!("the workspace of {key}, which was deleted"));
                }
            }
            journal.close().await;
            Result::Ok(())
        })?;
        for word in words {
            if let Some(key) = word.session() {
                findings.tally.acknowledged += 1;
                if let Some(record) = self.records.get(&write_key(key)) {
                    record.check_word(word, findings);
                }
            }
        }
        Ok(())
    }

    /// No process has these sessions any more.
    pub(crate) fn check_leases(&self, had: &Keys, findings: &mut Findings) -> Result<()> {
        self.runtime.block_on(async {
            let journal = open(&self.dir)?;
            for key in had.values() {
                if let Some(lease) = journal.session(key).await?.lease {
                    findings.leftover.push(format!("{key} is leased by `{}`", lease.owner));
                }
            }
            journal.close().await;
            Ok(())
        })
    }

    /// Session files in the data directory (workspaces, pinned skills) belong to recorded sessions.
    pub(crate) fn check_dirs(&self, findings: &mut Findings) -> Result<()> {
        if !journal_dir(&self.dir).exists() {
            return Ok(());
        }
        let Self { dir, runtime, records } = self;
        runtime.block_on(async {
            let journal = open(dir)?;
            for tenant in TENANTS {
                let tenant = TenantId::new(tenant)?;
                let (mut sessions, mut digests) = (BTreeSet::new(), BTreeSet::<String>::new());
                for info in recorded(&journal, &tenant).await? {
                    let key = SessionKey::new(tenant.clone(), info.session);
                    let skills = match records.get(&write_key(&key)) {
                        Some(record) => record.skills(),
                        // Its host was killed before it told of it.
                        None => {
                            let mut record = Record::new(key.clone());
                            record.read(&read_all(&journal, &key, 0).await?, &mut Findings::default())?;
                            record.skills()
                        }
                    };
                    digests.extend(skills.iter().map(Digest::to_hex));
                    sessions.insert(info.session.stored_name());
                }
                let of_tenant = tenant_dir(dir, tenant.as_str());
                let workspaces = entries(&of_tenant.join("workspaces")).into_iter();
                let lost = workspaces.filter(|path| !sessions.contains(&name_of(path)));
                findings.leftover.extend(lost.map(|path| format!("`{}`, of no session", path.display())));
                let skills = entries(&of_tenant.join("skills")).into_iter();
                let unused = skills.filter(|path| path.is_dir() && !digests.contains(&name_of(path)));
                findings.leftover.extend(unused.map(|path| format!("`{}`, of no session", path.display())));
            }
            journal.close().await;
            Ok(())
        })
    }

    /// Reads everything once more.
    pub(crate) fn check_everything(&self, findings: &mut Findings) -> Result<()> {
        let Self { dir, runtime, records } = self;
        runtime.block_on(async {
            let journal = open(dir)?;
            for record in records.values() {
                record.check_whole(&read_all(&journal, record.key(), 0).await?, findings);
            }
            journal.sweep().await?;
            journal.close().await;
            Result::Ok(())
        })?;
        let exposed = holding(&data_dir(dir), SECRET.as_bytes()).into_iter();
        findings.exposed.extend(exposed.map(|path| format!("a secret lies in `{}`", path.display())));
        Ok(())
    }

    /// Everything is over.
    pub(crate) fn check_settled(&self, findings: &mut Findings) -> Result<()> {
        findings.tally.sessions = self.records.len();
        for record in self.records.values() {
            record.check_settled(findings);
            findings.tally.effects += record.check_effects(&self.dir, findings);
        }
        Ok(())
    }
}

fn open(dir: &Path) -> Result<SqliteJournal> {
    Ok(SqliteJournal::open(&journal_dir(dir), SqliteOptions::default())?)
}

/// All sessions of a tenant.
async fn recorded(journal: &SqliteJournal, tenant: &TenantId) -> Result<Vec<conjure_journal::SessionInfo>> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = journal.sessions(tenant, after, 100).await?;
        found.extend(page.sessions);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(found),
        }
    }
}

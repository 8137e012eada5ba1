//! [`UploadIndex`]: the index of uploaded skills, a file `skills.json`.
//!
//! The file is replaced atomically, so a crash leaves the old or the new version. It holds nothing that the service does not know, so a
//! push can rebuild a lost index by comparing files. Entries are keyed by the service's address and a digest of the API key, never by the
//! key itself. A kernel lock on `skills.lock` serialises changes. The kernel releases it when the process ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use conjure_base::Digest;
use conjure_fs::{FileLock, ensure_dir, replace_file};
use serde::{Deserialize, Serialize};

use crate::hosted::sync::SyncError;
use crate::hosted::{SkillId, VersionId};

/// The format version of the file.
const FORMAT: u32 = 1;
/// The largest index file that is read, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// The owner of uploaded skills: service and API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::hosted) struct IndexKey {
    pub(in crate::hosted) service: String,
    pub(in crate::hosted) key: Digest,
}

/// The last upload of one skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UploadedSkill {
    pub(super) id: SkillId,
    pub(super) version: Option<VersionId>,
    /// The digest of that version's files.
    pub(super) digest: Digest,
    /// The directory that the skill was uploaded from.
    #[serde(rename = "folder")]
    pub(super) dir: String,
}

/// The uploaded skills of one owner, by name.
pub(super) type UploadedSkills = BTreeMap<String, UploadedSkill>;

#[derive(Debug, Serialize, Deserialize)]
struct IndexFile {
    format: u32,
    accounts: Vec<AccountEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct AccountEntry {
    base_url: String,
    key: Digest,
    skills: UploadedSkills,
}

/// The location of the index.
#[derive(Debug, Clone)]
pub(super) struct UploadIndex {
    dir: PathBuf,
}

/// The locked index. No other process can change it while this exists.
#[derive(Debug)]
pub(super) struct LockedIndex {
    index: UploadIndex,
    account: IndexKey,
    file: IndexFile,
    _lock: FileLock,
}

impl UploadIndex {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.join("skills.json")
    }

    /// Reads the entries of an owner. Blocks.
    pub(super) fn read(&self, account: &IndexKey) -> Result<UploadedSkills, SyncError> {
        let accounts = self.load()?.accounts;
        Ok(accounts.into_iter().find(|entry| entry.is(account)).map(|entry| entry.skills).unwrap_or_default())
    }

    /// Locks the index, or fails with [`SyncError::Busy`]. Blocks, but does not wait for the lock.
    pub(super) fn lock(&self, account: &IndexKey) -> Result<LockedIndex, SyncError> {
        ensure_dir(&self.dir).map_err(|error| SyncError::storage(&self.dir, error))?;
        let path = self.dir.join("skills.lock");
        let lock = FileLock::open(&path).and_then(FileLock::try_exclusive);
        let lock = lock.map_err(|errno| SyncError::storage(&path, errno.into()))?;
        let Some(lock) = lock else { return Err(SyncError::Busy { path }) };
        let file = self.load()?;
        Ok(LockedIndex { index: self.clone(), account: account.clone(), file, _lock: lock })
    }

    fn load(&self) -> Result<IndexFile, SyncError> {
        let path = self.path();
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(IndexFile { format: FORMAT, accounts: Vec::new() });
            }
            Err(error) => return Err(SyncError::storage(&path, error)),
        }
        parse(&bytes).map_err(|reason| SyncError::Damaged { path, reason })
    }

    fn store(&self, file: &IndexFile) -> Result<(), SyncError> {
        let path = self.path();
        let stored = || {
            let mut text = serde_json::to_vec_pretty(file)?;
            text.push(b'\n');
            replace_file(&path, &text)
        };
        stored().map_err(|error| SyncError::storage(&path, error))
    }
}

impl AccountEntry {
    fn is(&self, account: &IndexKey) -> bool {
        self.base_url == account.service && self.key == account.key
    }
}

impl LockedIndex {
    /// The entries of the owner.
    pub(super) fn uploaded(&self) -> UploadedSkills {
        let entry = self.file.accounts.iter().find(|entry| entry.is(&self.account));
        entry.map(|entry| entry.skills.clone()).unwrap_or_default()
    }

    /// Records an upload durably. Blocks until it is on disk.
    pub(super) fn remember(&mut self, name: &str, skill: UploadedSkill) -> Result<(), SyncError> {
        let skills = self.skills();
        if skills.get(name) == Some(&skill) {
            return Ok(());
        }
        skills.insert(name.to_owned(), skill);
        self.index.store(&self.file)
    }

    /// Removes the entries of a skill. Blocks until it is on disk.
    pub(super) fn forget(&mut self, id: &SkillId) -> Result<(), SyncError> {
        let skills = self.skills();
        let before = skills.len();
        skills.retain(|_, skill| skill.id != *id);
        if skills.len() == before {
            return Ok(());
        }
        self.index.store(&self.file)
    }

    fn skills(&mut self) -> &mut UploadedSkills {
        let accounts = &mut self.file.accounts;
        let place = accounts.iter().position(|entry| entry.is(&self.account)).unwrap_or_else(|| {
            let IndexKey { service, key } = self.account.clone();
            accounts.push(AccountEntry { base_url: service, key, skills: UploadedSkills::new() });
            accounts.len() - 1
        });
        &mut accounts[place].skills
    }
}

fn parse(bytes: &[u8]) -> Result<IndexFile, String> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it is larger than {MAX_BYTES} bytes"));
    }
    // The format is checked first, because a file of another format may have any content.
    #[derive(Deserialize)]
    struct Form {
        format: u32,
    }
    let form: Form = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if form.format != FORMAT {
        return Err(format!("it has format {}, but this version supports {FORMAT}", form.format));
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use proptest::prelude::*;

    fn account(key: &str) -> IndexKey {
        IndexKey { service: "https://example.com/".to_owned(), key: Digest::of_bytes(key.as_bytes()) }
    }

    fn skill(id: &str) -> UploadedSkill {
        UploadedSkill {
            id: SkillId::new(id),
            version: Some(VersionId::new("17")),
            digest: Digest::of_bytes(id.as_bytes()),
            dir: "/skills".to_owned(),
        }
    }

    fn index() -> (tempfile::TempDir, UploadIndex) {
        let dir = tempfile::tempdir().unwrap();
        let index = UploadIndex::new(dir.path().join("a/b"));
        (dir, index)
    }

    #[test]
    fn each_account_has_its_own_persistent_entries() {
        let (_dir, index) = index();
        let (mine, other) = (account("mine"), account("other"));
        let mut locked = index.lock(&mine).unwrap();
        locked.remember("a", skill("skill_1")).unwrap();
        locked.remember("b", skill("skill_2")).unwrap();
        drop(locked);
        let mut locked = index.lock(&other).unwrap();
        assert!(locked.uploaded().is_empty());
        locked.remember("a", skill("skill_3")).unwrap();
        locked.forget(&SkillId::new("skill_1")).unwrap();
        drop(locked);
        assert_eq!(index.read(&mine).unwrap().len(), 2);
        assert_eq!(index.read(&mine).unwrap()["a"], skill("skill_1"));
        index.lock(&mine).unwrap().forget(&SkillId::new("skill_1")).unwrap();
        assert_eq!(index.read(&mine).unwrap().keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(index.read(&other).unwrap()["a"], skill("skill_3"));
    }

    #[test]
    fn the_index_has_one_writer_and_many_readers() {
        let (_dir, index) = index();
        let locked = index.lock(&account("mine")).unwrap();
        let busy = index.lock(&account("other")).unwrap_err();
        assert!(matches!(busy, SyncError::Busy { .. }), "{busy}");
        assert!(index.read(&account("other")).unwrap().is_empty());
        drop(locked);
        index.lock(&account("other")).unwrap();
    }

    #[test]
    fn an_unreadable_index_is_reported_and_kept() {
        let (_dir, index) = index();
        drop(index.lock(&account("mine")).unwrap());
        for (text, expected) in [
            ("", "EOF while parsing"),
            ("{\"format\": 1, \"accounts\": [{}]}", "missing field `base_url` at line 1 column 29"),
            ("{\"format\": 2}", "it has format 2"),
        ] {
            fs::write(index.path(), text).unwrap();
            let error = index.lock(&account("mine")).unwrap_err();
            assert!(matches!(error, SyncError::Damaged { .. }), "{error}");
            assert!(
                error.to_string().contains(expected) && error.to_string().contains("delete it"),
                "{error}"
            );
            assert_eq!(fs::read_to_string(index.path()).unwrap(), text);
        }
        fs::remove_file(index.path()).unwrap();
        index.lock(&account("mine")).unwrap();
    }

    #[test]
    fn an_unwritable_directory_is_reported() {
        let (dir, index) = index();
        fs::write(dir.path().join("a"), "a file").unwrap();
        let error = index.lock(&account("mine")).unwrap_err();
        assert!(matches!(error, SyncError::Storage { .. }), "{error}");
    }

    proptest! {
        #[test]
        fn no_input_makes_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), rest in "\\PC{0,60}") {
            prop_assert!(parse(&bytes).is_err());
            let _ = parse(format!("{{\"format\":1,\"accounts\":[{rest}]}}").as_bytes());
        }

        #[test]
        fn what_is_stored_is_read(names in proptest::collection::btree_set(any::<String>(), 0..5)) {
            let skills: UploadedSkills = names.iter().map(|name| (name.clone(), skill(name))).collect();
            let entry = AccountEntry { base_url: "u".to_owned(), key: Digest::of_bytes(b"k"), skills: skills.clone() };
            let text = serde_json::to_vec(&IndexFile { format: FORMAT, accounts: vec![entry] }).unwrap();
            prop_assert_eq!(&parse(&text).unwrap().accounts[0].skills, &skills);
        }
    }
}

//! What was uploaded, by whose key, to where: a small file, `skills.json`, with a lock beside it.
//!
//! State: that file. It is replaced as a whole (a file beside it, synced, renamed, the folder synced), so a crash leaves the
//! one before or the one after. It holds nothing that the service does not know: what is lost of it is found again by
//! comparing. Its key is the address of the service and a digest of the key, never the key. `skills.lock` is locked while
//! somebody changes the file, by the kernel, which lets go of it when that process ends.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use conjure_base::Digest;
use serde::{Deserialize, Serialize};

use crate::hosted::sync::SyncError;
use crate::hosted::{SkillId, VersionId};

/// The form of the file.
const FORMAT: u32 = 1;
/// The largest file that is read, in bytes: far more than anybody uploads skills.
const LARGEST: u64 = 64 << 20;

/// Whose skills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::hosted) struct Account {
    pub(in crate::hosted) service: String,
    pub(in crate::hosted) key: Digest,
}

/// What was uploaded last of one skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remembered {
    pub(super) id: SkillId,
    pub(super) version: Option<VersionId>,
    /// Of the files of that version.
    pub(super) digest: Digest,
    /// The folder of skills that it came from.
    pub(super) folder: String,
}

/// The skills of an account, by name.
pub(super) type Memory = BTreeMap<String, Remembered>;

#[derive(Debug, Serialize, Deserialize)]
struct IndexFile {
    format: u32,
    accounts: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    base_url: String,
    key: Digest,
    skills: Memory,
}

/// Where the file lies.
#[derive(Debug, Clone)]
pub(super) struct Index {
    folder: PathBuf,
}

/// The file, which nobody else changes as long as this is there.
#[derive(Debug)]
pub(super) struct Locked {
    index: Index,
    account: Account,
    file: IndexFile,
    /// The lock ends with it.
    _lock: File,
}

impl Index {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("skills.json")
    }

    /// What is remembered of an account. Blocks for a moment.
    pub(super) fn read(&self, account: &Account) -> Result<Memory, SyncError> {
        let accounts = self.load()?.accounts;
        Ok(accounts.into_iter().find(|entry| entry.is(account)).map(|entry| entry.skills).unwrap_or_default())
    }

    /// The right to change it. Blocks for a moment, and does not wait for others.
    pub(super) fn lock(&self, account: &Account) -> Result<Locked, SyncError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| SyncError::storage(&self.folder, error))?;
        let path = self.folder.join("skills.lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(|error| SyncError::storage(&path, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SyncError::Busy { path }),
            Err(TryLockError::Error(error)) => return Err(SyncError::storage(&path, error)),
        }
        let file = self.load()?;
        Ok(Locked { index: self.clone(), account: account.clone(), file, _lock: lock })
    }

    fn load(&self) -> Result<IndexFile, SyncError> {
        let path = self.path();
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes)) {
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
            let draft = self.folder.join("skills.json.new");
            let mut new =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            new.write_all(&text)?;
            new.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        stored().map_err(|error| SyncError::storage(&path, error))
    }
}

impl Entry {
    fn is(&self, account: &Account) -> bool {
        self.base_url == account.service && self.key == account.key
    }
}

impl Locked {
    /// What is remembered of the account.
    pub(super) fn memory(&self) -> Memory {
        let entry = self.file.accounts.iter().find(|entry| entry.is(&self.account));
        entry.map(|entry| entry.skills.clone()).unwrap_or_default()
    }

    /// Puts down what was uploaded, for good. Blocks until the disk has it.
    pub(super) fn remember(&mut self, name: &str, skill: Remembered) -> Result<(), SyncError> {
        let skills = self.skills();
        if skills.get(name) == Some(&skill) {
            return Ok(());
        }
        skills.insert(name.to_owned(), skill);
        self.index.store(&self.file)
    }

    /// Forgets this skill, under whatever name. Blocks until the disk has it.
    pub(super) fn forget(&mut self, id: &SkillId) -> Result<(), SyncError> {
        let skills = self.skills();
        let before = skills.len();
        skills.retain(|_, skill| skill.id != *id);
        if skills.len() == before {
            return Ok(());
        }
        self.index.store(&self.file)
    }

    fn skills(&mut self) -> &mut Memory {
        let accounts = &mut self.file.accounts;
        let place = accounts.iter().position(|entry| entry.is(&self.account)).unwrap_or_else(|| {
            let Account { service, key } = self.account.clone();
            accounts.push(Entry { base_url: service, key, skills: Memory::new() });
            accounts.len() - 1
        });
        &mut accounts[place].skills
    }
}

fn parse(bytes: &[u8]) -> Result<IndexFile, String> {
    if bytes.len() as u64 > LARGEST {
        return Err(format!("it is larger than {LARGEST} bytes"));
    }
    // Which form it has is said before what is in it: another one may hold anything.
    #[derive(Deserialize)]
    struct Form {
        format: u32,
    }
    let form: Form = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if form.format != FORMAT {
        return Err(format!("it has format {}, and this version knows {FORMAT}", form.format));
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn account(key: &str) -> Account {
        Account { service: "https://example.com/".to_owned(), key: Digest::of(key.as_bytes()) }
    }

    fn skill(id: &str) -> Remembered {
        Remembered {
            id: SkillId::new(id),
            version: Some(VersionId::new("17")),
            digest: Digest::of(id.as_bytes()),
            folder: "/skills".to_owned(),
        }
    }

    fn index() -> (tempfile::TempDir, Index) {
        let folder = tempfile::tempdir().unwrap();
        let index = Index::new(folder.path().join("a/b"));
        (folder, index)
    }

    #[test]
    fn each_account_has_a_memory_of_its_own_which_outlives_the_process() {
        let (_folder, index) = index();
        let (mine, other) = (account("mine"), account("other"));
        let mut locked = index.lock(&mine).unwrap();
        locked.remember("a", skill("skill_1")).unwrap();
        locked.remember("b", skill("skill_2")).unwrap();
        drop(locked);
        let mut locked = index.lock(&other).unwrap();
        assert!(locked.memory().is_empty());
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
    fn one_at_a_time_changes_it_and_anybody_reads_it() {
        let (_folder, index) = index();
        let locked = index.lock(&account("mine")).unwrap();
        let busy = index.lock(&account("other")).unwrap_err();
        assert!(matches!(busy, SyncError::Busy { .. }), "{busy}");
        assert!(index.read(&account("other")).unwrap().is_empty());
        drop(locked);
        index.lock(&account("other")).unwrap();
    }

    #[test]
    fn what_cannot_be_understood_is_told_and_stays() {
        let (_folder, index) = index();
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
    fn a_folder_that_cannot_be_written_is_told() {
        let (folder, index) = index();
        fs::write(folder.path().join("a"), "a file").unwrap();
        let error = index.lock(&account("mine")).unwrap_err();
        assert!(matches!(error, SyncError::Storage { .. }), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), rest in "\\PC{0,60}") {
            prop_assert!(parse(&bytes).is_err());
            let _ = parse(format!("{{\"format\":1,\"accounts\":[{rest}]}}").as_bytes());
        }

        #[test]
        fn what_is_stored_is_read(names in proptest::collection::btree_set(any::<String>(), 0..5)) {
            let skills: Memory = names.iter().map(|name| (name.clone(), skill(name))).collect();
            let entry = Entry { base_url: "u".to_owned(), key: Digest::of(b"k"), skills: skills.clone() };
            let text = serde_json::to_vec(&IndexFile { format: FORMAT, accounts: vec![entry] }).unwrap();
            prop_assert_eq!(&parse(&text).unwrap().accounts[0].skills, &skills);
        }
    }
}

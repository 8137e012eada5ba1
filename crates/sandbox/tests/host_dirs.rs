//! The directories of sandboxes on the host: made, filled, removed whatever is in them.

#![expect(clippy::unwrap_used, reason = "a test fails by panic")]

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use conjure_base::Digest;
use conjure_sandbox::{
    CommitToken, ContentDir, ContentItem, SandboxDir, SandboxDirs, SandboxError, SandboxErrorKind, dir_id,
    remove_tree,
};
use conjure_store::{Durability, FileMode, Store, StoreOptions, Tree, TreeOptions};
use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use tempfile::TempDir;

struct Fixture {
    directory: TempDir,
    dirs: SandboxDirs,
    store: Store,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let dirs = SandboxDirs::open(directory.path()).unwrap();
        let options = StoreOptions { durability: Durability::Process, ..StoreOptions::default() };
        let store = Store::open_with(&directory.path().join("store"), options).unwrap();
        Self { directory, dirs, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn tree(&self, files: &[(&str, &str)]) -> Tree {
        let source = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = source.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        self.store.insert_tree(source.path(), &TreeOptions::default()).unwrap()
    }

    fn install(&self, dir: &SandboxDir, name: &str, tree: &Tree) -> Result<(), SandboxError> {
        let item = ContentItem::tree(ContentDir::Skills, name, &self.store, tree.clone());
        dir.install(&item, &CommitToken::default())
    }

    fn provide_file(&self, dir: &SandboxDir, name: &str, digest: Digest) -> Result<(), SandboxError> {
        let item = ContentItem::file(ContentDir::Artifacts, name, &self.store, digest, FileMode::Plain);
        dir.install(&item, &CommitToken::default())
    }
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_content_dir_is_removed_when_its_value_is_dropped() {
    let fixture = Fixture::new();
    let dir = fixture.dirs.create().unwrap();
    let tree = fixture.tree(&[("SKILL.md", "# Hello"), ("scripts/run.sh", "true")]);
    fixture.install(&dir, "hello", &tree).unwrap();
    let artifact = fixture.store.insert_bytes(b"a,b", FileMode::Plain).unwrap().digest;
    fixture.provide_file(&dir, "sales", artifact).unwrap();
    assert_eq!(names(dir.path()), ["artifacts", "lock", "output", "skills"]);
    assert_eq!(fs::read(dir.content_dir(ContentDir::Skills).join("hello/scripts/run.sh")).unwrap(), b"true");
    assert_eq!(fs::read(dir.content_dir(ContentDir::Artifacts).join("sales")).unwrap(), b"a,b");
    assert_eq!(names(&dir.output()), [""; 0]);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(dir.path()), 0o700);
    assert_eq!(mode(&dir.content_dir(ContentDir::Skills)), 0o755);
    // It is the store's own file, not a copy.
    assert_eq!(fs::metadata(dir.content_dir(ContentDir::Artifacts).join("sales")).unwrap().nlink(), 2);
    let path = dir.path().to_owned();
    dir.remove().unwrap();
    assert!(!path.exists());
    drop(fixture.dirs.create().unwrap());
    assert_eq!(names(fixture.dirs.path()), [""; 0]);
}

#[test]
fn a_failed_install_keeps_the_existing_content() {
    let fixture = Fixture::new();
    let dir = fixture.dirs.create().unwrap();
    let tree = fixture.tree(&[("SKILL.md", "# One")]);
    let install = |name: &str, tree| fixture.install(&dir, name, tree).map_err(|error| error.kind());
    install("one", &tree).unwrap();
    let other = fixture.tree(&[("SKILL.md", "# Two")]);
    assert_eq!(install("one", &other), Err(SandboxErrorKind::Exists));
    for name in ["", ".", "..", "a/b", "../x", "nul\0"] {
        assert_eq!(install(name, &other), Err(SandboxErrorKind::BadRequest), "{name:?}");
    }
    fixture.store.remove(other.files()[0].digest()).unwrap();
    assert_eq!(install("two", &other), Err(SandboxErrorKind::NotFound));
    assert_eq!(names(&dir.content_dir(ContentDir::Skills)), ["one"]);
    assert_eq!(fs::read(dir.content_dir(ContentDir::Skills).join("one/SKILL.md")).unwrap(), b"# One");
    assert_eq!(names(dir.path()), ["artifacts", "lock", "output", "skills"]);
    let file = |name: &str| fixture.provide_file(&dir, name, *tree.files()[0].digest());
    file("name").unwrap();
    assert_eq!(file("name").unwrap_err().kind(), SandboxErrorKind::Exists);
    assert_eq!(file("a/b").unwrap_err().kind(), SandboxErrorKind::BadRequest);
    assert_eq!(names(dir.path()), ["artifacts", "lock", "output", "skills"]);
}

#[test]
fn cancelled_installs_do_not_appear() {
    let fixture = Fixture::new();
    let dir = fixture.dirs.create().unwrap();
    let called_off = CommitToken::default();
    assert!(called_off.cancel());
    let tree = fixture.tree(&[("SKILL.md", "# One")]);
    let file = ContentItem::file(
        ContentDir::Skills,
        "file",
        &fixture.store,
        *tree.files()[0].digest(),
        FileMode::Plain,
    );
    for item in [ContentItem::tree(ContentDir::Skills, "one", &fixture.store, tree.clone()), file] {
        let refusal = dir.install(&item, &called_off).unwrap_err();
        assert_eq!(refusal.kind(), SandboxErrorKind::Cancelled);
    }
    assert_eq!(names(&dir.content_dir(ContentDir::Skills)), [""; 0]);
    assert_eq!(names(dir.path()), ["artifacts", "lock", "output", "skills"]);
}

#[test]
fn many_hosts_create_and_sweep_concurrently() {
    let fixture = Fixture::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            let dirs = SandboxDirs::open(fixture.directory.path()).unwrap();
            scope.spawn(move || {
                for _ in 0..30 {
                    let dir = dirs.create().unwrap();
                    let mark = dir.output().join("mark");
                    fs::write(&mark, "mine").unwrap();
                    let swept = dirs.sweep().unwrap();
                    assert!(swept.failures.is_empty(), "{:?}", swept.failures);
                    assert!(swept.alive >= 1);
                    assert_eq!(fs::read(&mark).unwrap(), b"mine");
                    dir.remove().unwrap();
                }
            });
        }
    });
    assert_eq!(names(fixture.dirs.path()), [""; 0]);
}

/// The leftovers of a host that was killed while it created or removed a directory: its lock is free.
#[test]
fn leftovers_of_dead_hosts_are_swept() {
    let fixture = Fixture::new();
    let alive = fixture.dirs.create().unwrap();
    for path in ["1-0", "1-1/lock", "1-2/lock", "1-2/skills/a/SKILL.md", "dead-1-3/skills", "dead-1-4"] {
        let path = fixture.dirs.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // As far as it came.
        if path.ends_with("lock") {
            fs::write(path, "").unwrap();
        } else {
            fs::create_dir(path).unwrap();
        }
    }
    fs::write(fixture.dirs.path().join("note"), "of a person").unwrap();
    let swept = fixture.dirs.sweep().unwrap();
    assert_eq!((swept.removed, swept.alive, swept.failures.len()), (5, 1, 0), "{swept:?}");
    let own = alive.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(names(fixture.dirs.path()), [own, "note"]);
    assert_eq!(names(alive.path()), ["artifacts", "lock", "output", "skills"]);
}

/// A data directory may be one that a person has put things in.
#[test]
fn unrelated_files_are_not_swept() {
    let fixture = Fixture::new();
    let foreign = [
        "mine/file",
        "mine/lock",
        "dead-letters/file",
        "dead-1-2-3/file",
        "1-2-3/lock",
        "1-7/file",
        "2024-06",
    ];
    for path in foreign {
        let path = fixture.dirs.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "of a person").unwrap();
    }
    let swept = fixture.dirs.sweep().unwrap();
    assert_eq!((swept.removed, swept.alive, swept.failures.len()), (0, 0, 0), "{swept:?}");
    for path in foreign {
        assert_eq!(fs::read(fixture.dirs.path().join(path)).unwrap(), b"of a person", "{path}");
    }
}

fn remove(path: &Path) -> Result<(), SandboxError> {
    remove_tree(path, dir_id(path).unwrap())
}

#[test]
fn a_directory_is_removed_whatever_it_contains() {
    let fixture = Fixture::new();
    let top = fixture.path("top");
    fs::create_dir_all(top.join("a/b/c")).unwrap();
    let outside = fixture.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "stays").unwrap();
    symlink(&outside, top.join("a/link")).unwrap();
    symlink(outside.join("file"), top.join("a/b/link")).unwrap();
    symlink("../..", top.join("a/b/c/up")).unwrap();
    fs::hard_link(outside.join("file"), top.join("hard")).unwrap();
    rustix::fs::mknodat(CWD, top.join("a/pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    for name in [b"-rf".as_slice(), b"new\nline", b"\xff\xfe", b".conjure-removing-1", b"...", b"*"] {
        let name = OsString::from_vec(name.to_vec());
        fs::create_dir_all(top.join("a").join(&name).join("deep/er")).unwrap();
        fs::create_dir_all(top.join(&name).join("deep/er")).unwrap();
    }
    fs::write(top.join(".conjure-removing-2"), "in the way").unwrap();
    for (path, mode) in [("a/b/c", 0), ("a/b", 0o200), ("a", 0o444), ("", 0o100)] {
        fs::set_permissions(top.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    if rustix::process::geteuid().is_root() {
        for path in ["a/b/c", "a/pipe", ""] {
            std::os::unix::fs::lchown(top.join(path), Some(12_345), Some(12_345)).unwrap();
        }
    }
    remove(&top).unwrap();
    assert!(!top.exists());
    assert_eq!(names(&outside), ["file"]);
    assert_eq!(fs::metadata(outside.join("file")).unwrap().nlink(), 1);
}

/// Deeper than any path can tell, and than descriptors suffice.
#[test]
fn a_deep_directory_is_removed() {
    const DEPTH: u32 = 2_000;
    let fixture = Fixture::new();
    let top = fixture.path("top");
    fs::create_dir(&top).unwrap();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let mut directory = rustix::fs::openat(CWD, &top, flags, Mode::empty()).unwrap();
    for _ in 0..DEPTH {
        let file = rustix::fs::openat(&directory, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR);
        drop(file.unwrap());
        rustix::fs::mkdirat(&directory, "directory", Mode::RWXU).unwrap();
        directory = rustix::fs::openat(&directory, "directory", flags, Mode::empty()).unwrap();
    }
    remove(&top).unwrap();
    assert!(!top.exists());
}

#[test]
fn a_wide_directory_is_removed() {
    let fixture = Fixture::new();
    let top = fixture.path("top");
    fs::create_dir_all(top.join("in")).unwrap();
    for number in 0..4_200 {
        fs::write(top.join(number.to_string()), "").unwrap();
        fs::create_dir_all(top.join("in").join(number.to_string()).join("more")).unwrap();
    }
    remove(&top).unwrap();
    assert!(!top.exists());
}

#[test]
fn only_the_intended_directory_is_removed() {
    let fixture = Fixture::new();
    let (top, other) = (fixture.path("top"), fixture.path("other"));
    fs::create_dir(&top).unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "stays").unwrap();
    let id = dir_id(&top).unwrap();
    let refusal = || remove_tree(&top, id).unwrap_err().kind();
    // Kept, so that its number is not used again.
    fs::rename(&top, fixture.path("moved")).unwrap();
    remove_tree(&top, id).unwrap();
    symlink(&other, &top).unwrap();
    assert_eq!(refusal(), SandboxErrorKind::WrongFileType);
    fs::remove_file(&top).unwrap();
    fs::rename(&other, &top).unwrap();
    assert_eq!(refusal(), SandboxErrorKind::WrongFileType);
    assert_eq!(fs::read(top.join("file")).unwrap(), b"stays");
    fs::remove_dir_all(&top).unwrap();
    fs::write(&top, "a file").unwrap();
    assert_eq!(refusal(), SandboxErrorKind::WrongFileType);
    assert_eq!(fs::read(&top).unwrap(), b"a file");
    assert_eq!(dir_id(&top).unwrap_err().kind(), SandboxErrorKind::WrongFileType);
}

#[derive(Debug, Clone)]
enum Entry {
    File,
    Link(String),
    Dir(u32, Vec<(String, Entry)>),
}

fn entry() -> impl Strategy<Value = Entry> {
    let leaf = prop_oneof![
        Just(Entry::File),
        "(\\.\\./|a/|/){0,4}[ab]?"
            .prop_filter("a link leads somewhere", |to| !to.is_empty())
            .prop_map(Entry::Link),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        let entries = prop::collection::vec(("[ab.]{1,3}", inner), 0..6);
        (0..0o1000_u32, entries).prop_map(|(mode, entries)| Entry::Dir(mode, entries))
    })
}

fn plant(path: &Path, entry: &Entry) {
    // Names that are taken, and a directory's own, are left out.
    match entry {
        // Not through a link that has the name.
        Entry::File => drop(File::create_new(path)),
        Entry::Link(to) => drop(symlink(to, path)),
        Entry::Dir(mode, entries) => {
            if fs::create_dir(path).is_ok() {
                for (name, entry) in entries.iter().filter(|(name, _)| name != "." && name != "..") {
                    plant(&path.join(name), entry);
                }
                fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn removal_is_complete_and_touches_nothing_else(entry in entry()) {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::write(directory.path().join(name), "stays").unwrap();
        }
        let top = directory.path().join("top");
        plant(&top, &Entry::Dir(0o700, vec![("a".to_owned(), entry)]));
        remove(&top).unwrap();
        prop_assert_eq!(names(directory.path()), ["a", "b"]);
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = rustix::fs::statat(CWD, directory.path().join("a"), flags).unwrap();
        prop_assert_eq!(stat.st_size, 5);
    }
}

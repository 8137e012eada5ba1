//! Whole directories.

use std::ffi::OsString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use conjure_base::{Clock as _, Digest, SystemClock};
use conjure_store::{FileMode, SkipReason, StoreErrorKind, TreeOptions};
use rustix::fs::{CWD, FileType, Mode, inotify, mknodat};
use rustix::io::Errno;

use crate::support::{StoreFixture, age_file, mode, paths, set_mode};

fn all() -> TreeOptions {
    TreeOptions::default()
}

/// A skill with a script in it.
fn skill(fixture: &StoreFixture) -> PathBuf {
    fixture.file("skill/SKILL.md", b"# Hello\n");
    let script = fixture.file("skill/scripts/run.sh", b"#!/bin/sh\n");
    set_mode(&script, 0o755);
    fixture.file("skill/scripts/data/table.csv", b"a,b\n");
    fixture.path("skill")
}

#[test]
fn a_directory_is_linked_as_it_was_inserted() {
    let fixture = StoreFixture::new();
    let skill = skill(&fixture);
    fs::create_dir(skill.join("empty")).unwrap();
    let tree = fixture.store.insert_tree(&skill, &all()).unwrap();
    assert_eq!(paths(&tree), ["SKILL.md", "scripts/data/table.csv", "scripts/run.sh"]);
    assert_eq!((tree.bytes(), tree.skipped()), (22, &[][..]));
    let script = &tree.files()[2];
    assert_eq!((script.mode(), script.size()), (FileMode::Executable, 10));
    assert_eq!(*script.digest(), Digest::of_bytes(b"#!/bin/sh\n"));
    let (path, dir) = fixture.dir("place");
    fixture.store.link_tree(&tree, &dir).unwrap();
    assert_eq!(fs::read(path.join("scripts/data/table.csv")).unwrap(), b"a,b\n");
    assert_eq!(mode(&path.join("scripts/run.sh")), 0o555);
    assert_eq!(mode(&path.join("SKILL.md")), 0o444);
    assert_eq!(mode(&path.join("scripts")), 0o755);
    assert!(!path.join("empty").exists());
    // The linked directory gives the same tree.
    assert_eq!(fixture.store.insert_tree(&path, &all()).unwrap().digest(), tree.digest());
    fixture.assert_tidy();
}

/// Journals store it, so it must not change.
#[test]
fn the_digest_of_a_tree_is_stable() {
    let fixture = StoreFixture::new();
    let tree = fixture.store.insert_tree(&skill(&fixture), &all()).unwrap();
    let mut text = b"conjure-tree 1\n".to_vec();
    for (mark, path, bytes) in [
        ('-', "SKILL.md", "# Hello\n"),
        ('-', "scripts/data/table.csv", "a,b\n"),
        ('x', "scripts/run.sh", "#!/bin/sh\n"),
    ] {
        let hex = Digest::of_bytes(bytes.as_bytes()).to_hex();
        text.extend(format!("{mark} {hex} {} {}:{path}\n", bytes.len(), path.len()).bytes());
    }
    assert_eq!(*tree.digest(), Digest::of_bytes(&text));
}

#[test]
fn links_within_the_root_are_replaced_and_others_skipped() {
    let fixture = StoreFixture::new();
    let skill = skill(&fixture);
    fixture.file("secret", b"secret");
    let link = |to: &str, name: &str| symlink(to, skill.join(name)).unwrap();
    link("scripts/run.sh", "run");
    link("scripts/data", "data");
    link("../table.csv", "scripts/data/wrong");
    link("../../SKILL.md", "scripts/data/readme");
    link("../secret", "out");
    link(fixture.path("secret").to_str().unwrap(), "absolute");
    link("/proc/self/root/etc", "magic");
    link("nowhere", "dangling");
    link("self", "self");
    link("..", "scripts/up");
    mknodat(CWD, skill.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    link("pipe", "to-pipe");
    let tree = fixture.store.insert_tree(&skill, &all()).unwrap();
    assert_eq!(
        paths(&tree),
        [
            "SKILL.md",
            "data/readme",
            "data/table.csv",
            "run",
            "scripts/data/readme",
            "scripts/data/table.csv",
            "scripts/run.sh"
        ]
    );
    assert_eq!(tree.files()[3].mode(), FileMode::Executable);
    let skipped: Vec<_> =
        tree.skipped().iter().map(|skipped| (skipped.path.to_str().unwrap(), skipped.reason)).collect();
    assert_eq!(
        skipped,
        [
            ("absolute", SkipReason::EscapesRoot),
            ("dangling", SkipReason::DanglingLink),
            ("data/wrong", SkipReason::DanglingLink),
            ("magic", SkipReason::EscapesRoot),
            ("out", SkipReason::EscapesRoot),
            ("pipe", SkipReason::SpecialFile),
            ("scripts/data/wrong", SkipReason::DanglingLink),
            ("scripts/up", SkipReason::LinkLoop),
            ("self", SkipReason::LinkLoop),
            ("to-pipe", SkipReason::SpecialFile),
        ]
    );
    assert!(!fixture.store.contains(&Digest::of_bytes(b"secret"), FileMode::Plain).unwrap());
}

/// The kernel gives up a path with `..` when anything on the machine is renamed in the meantime.
#[test]
fn upward_links_are_followed_during_concurrent_renames() {
    let fixture = StoreFixture::new();
    let skill = skill(&fixture);
    for number in 0..100 {
        symlink("../../SKILL.md", skill.join(format!("scripts/data/{number}"))).unwrap();
    }
    let other_dir = tempfile::tempdir().unwrap();
    let (one, other) = (other_dir.path().join("one"), other_dir.path().join("other"));
    fs::create_dir(&one).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::rename(&one, &other).unwrap();
                fs::rename(&other, &one).unwrap();
            }
        });
        let inserted: Vec<_> = (0..10).map(|_| fixture.store.insert_tree(&skill, &all())).collect();
        done.store(true, Ordering::Relaxed);
        for tree in inserted {
            assert_eq!(tree.unwrap().files().len(), 103);
        }
    });
}

#[test]
fn the_limits_hold() {
    let fixture = StoreFixture::new();
    let skill = skill(&fixture);
    let refused = |options: TreeOptions| {
        let error = fixture.store.insert_tree(&skill, &options).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::LimitExceeded);
        error.to_string()
    };
    assert!(
        fixture
            .store
            .insert_tree(&skill, &TreeOptions { max_entries: 5, max_bytes: 22, max_depth: 3, ..all() })
            .is_ok()
    );
    assert!(refused(TreeOptions { max_entries: 4, ..all() }).contains("more than 4 entries"));
    assert!(refused(TreeOptions { max_bytes: 21, ..all() }).contains("more than 21 bytes"));
    assert!(refused(TreeOptions { max_depth: 2, ..all() }).contains("more than 2 levels of directories"));
    // A thousand directories with links to each other: two to the power of thirty paths.
    for depth in 0..30 {
        let dir = skill.join(depth.to_string());
        fs::create_dir(&dir).unwrap();
        for name in ["a", "b"] {
            symlink(format!("../{}", depth + 1), dir.join(name)).unwrap();
        }
    }
    refused(all());
    fixture.assert_tidy();
}

#[test]
fn excluded_names_are_skipped_everywhere() {
    let fixture = StoreFixture::new();
    let skill = skill(&fixture);
    fixture.file("skill/.git/config", b"x");
    fixture.file("skill/scripts/.git", b"gitdir: elsewhere");
    let options = TreeOptions { exclude: vec![".git".into()], ..all() };
    assert_eq!(fixture.store.insert_tree(&skill, &options).unwrap().files().len(), 3);
    assert_eq!(fixture.store.insert_tree(&skill, &all()).unwrap().files().len(), 5);
}

#[test]
fn names_may_contain_any_bytes() {
    let fixture = StoreFixture::new();
    let skill = skill(&fixture);
    let odd = OsString::from_vec(b"new\nline \xff:-".to_vec());
    fs::write(skill.join(&odd), "odd").unwrap();
    let tree = fixture.store.insert_tree(&skill, &all()).unwrap();
    assert_eq!(tree.files()[1].path(), Path::new(&odd));
    let (path, dir) = fixture.dir("place");
    fixture.store.link_tree(&tree, &dir).unwrap();
    assert_eq!(fs::read(path.join(&odd)).unwrap(), b"odd");
}

/// True if the file at `path` is opened while `act` runs.
fn is_opened(path: &Path, act: impl FnOnce()) -> bool {
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, path, inotify::WatchFlags::OPEN).unwrap();
    act();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(watch, &mut buffer);
    match reader.next() {
        Ok(_) => true,
        Err(Errno::AGAIN) => false,
        Err(errno) => panic!("{errno}"),
    }
}

#[test]
fn a_second_insertion_opens_no_file() {
    let fixture = StoreFixture::ahead();
    let skill = skill(&fixture);
    let file = skill.join("SKILL.md");
    let insert = || fixture.store.insert_tree(&skill, &all()).unwrap();
    let first = insert();
    assert!(!is_opened(&file, || assert_eq!(insert(), first)));
    // A changed file is read again, also when its size and modification time are as before.
    let date = fs::metadata(&file).unwrap().modified().unwrap();
    age_file(&fixture, &file);
    fs::write(&file, "# World\n").unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(date).unwrap();
    assert!(is_opened(&file, || assert_ne!(insert().digest(), first.digest())));
    assert!(!is_opened(&file, || drop(insert())));
    // A collected content is inserted again.
    fixture.store.remove(&Digest::of_bytes(b"# World\n")).unwrap();
    assert!(is_opened(&file, || drop(insert())));
    assert!(fixture.store.contains(&Digest::of_bytes(b"# World\n"), FileMode::Plain).unwrap());
}

/// The file could change again without a new time, since the kernel records times in steps.
#[test]
fn a_file_that_was_just_changed_is_not_cached() {
    let fixture = StoreFixture::at(SystemClock.timestamp());
    let skill = skill(&fixture);
    let insert = || drop(fixture.store.insert_tree(&skill, &all()).unwrap());
    insert();
    assert!(is_opened(&skill.join("SKILL.md"), insert));
}

#[test]
fn many_new_files_are_synced_together() {
    let fixture = StoreFixture::with(conjure_store::StoreOptions::default());
    for number in 0..150 {
        fixture.file(&format!("skill/{number:03}"), number.to_string().as_bytes());
    }
    let tree = fixture.store.insert_tree(&fixture.path("skill"), &all()).unwrap();
    assert_eq!((tree.files().len(), fixture.store.usage().unwrap().contents), (150, 150));
    fixture.assert_tidy();
}

#[test]
fn a_tree_whose_content_was_removed_is_not_linked() {
    let fixture = StoreFixture::new();
    let tree = fixture.store.insert_tree(&skill(&fixture), &all()).unwrap();
    fixture.store.remove(&Digest::of_bytes(b"a,b\n")).unwrap();
    let (_, dir) = fixture.dir("place");
    assert_eq!(fixture.store.link_tree(&tree, &dir).unwrap_err().kind(), StoreErrorKind::NotFound);
}

#[test]
fn the_error_names_a_path_that_is_missing_or_no_directory() {
    let fixture = StoreFixture::new();
    let file = fixture.file("file", b"");
    for path in [fixture.path("missing"), file] {
        let error = fixture.store.insert_tree(&path, &all()).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

//! Whole folders.

use std::ffi::OsString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use conjure_base::{Clock as _, Digest, SystemClock};
use conjure_store::{LeftOutReason, StoreErrorKind, TreeOptions, Variant};
use rustix::fs::{CWD, FileType, Mode, inotify, mknodat};
use rustix::io::Errno;

use crate::support::{Bed, let_time_pass, mode, paths, set_mode};

fn all() -> TreeOptions {
    TreeOptions::default()
}

/// A skill with a script in it.
fn skill(bed: &Bed) -> PathBuf {
    bed.file("skill/SKILL.md", b"# Hello\n");
    let script = bed.file("skill/scripts/run.sh", b"#!/bin/sh\n");
    set_mode(&script, 0o755);
    bed.file("skill/scripts/data/table.csv", b"a,b\n");
    bed.path("skill")
}

#[test]
fn a_folder_comes_out_as_it_went_in() {
    let bed = Bed::new();
    let skill = skill(&bed);
    fs::create_dir(skill.join("empty")).unwrap();
    let tree = bed.store.insert_tree(&skill, &all()).unwrap();
    assert_eq!(paths(&tree), ["SKILL.md", "scripts/data/table.csv", "scripts/run.sh"]);
    assert_eq!((tree.bytes(), tree.left_out()), (22, &[][..]));
    let script = &tree.files()[2];
    assert_eq!((script.variant(), script.size()), (Variant::Executable, 10));
    assert_eq!(*script.digest(), Digest::of(b"#!/bin/sh\n"));
    let (place, folder) = bed.folder("place");
    bed.store.link_tree(&tree, &folder).unwrap();
    assert_eq!(fs::read(place.join("scripts/data/table.csv")).unwrap(), b"a,b\n");
    assert_eq!(mode(&place.join("scripts/run.sh")), 0o555);
    assert_eq!(mode(&place.join("SKILL.md")), 0o444);
    assert_eq!(mode(&place.join("scripts")), 0o755);
    assert!(!place.join("empty").exists());
    // What was put there is the same tree.
    assert_eq!(bed.store.insert_tree(&place, &all()).unwrap().digest(), tree.digest());
    bed.assert_tidy();
}

/// Stored in journals, so it must not change.
#[test]
fn the_digest_of_a_tree_is_written_down() {
    let bed = Bed::new();
    let tree = bed.store.insert_tree(&skill(&bed), &all()).unwrap();
    let mut text = b"conjure-tree 1\n".to_vec();
    for (mark, path, bytes) in [
        ('-', "SKILL.md", "# Hello\n"),
        ('-', "scripts/data/table.csv", "a,b\n"),
        ('x', "scripts/run.sh", "#!/bin/sh\n"),
    ] {
        let hex = Digest::of(bytes.as_bytes()).to_hex();
        text.extend(format!("{mark} {hex} {} {}:{path}\n", bytes.len(), path.len()).bytes());
    }
    assert_eq!(*tree.digest(), Digest::of(&text));
}

#[test]
fn links_within_are_replaced_and_others_left_out() {
    let bed = Bed::new();
    let skill = skill(&bed);
    bed.file("secret", b"secret");
    let link = |to: &str, name: &str| symlink(to, skill.join(name)).unwrap();
    link("scripts/run.sh", "run");
    link("scripts/data", "data");
    link("../table.csv", "scripts/data/wrong");
    link("../../SKILL.md", "scripts/data/readme");
    link("../secret", "out");
    link(bed.path("secret").to_str().unwrap(), "absolute");
    link("/proc/self/root/etc", "magic");
    link("nowhere", "dangling");
    link("self", "self");
    link("..", "scripts/up");
    mknodat(CWD, skill.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    link("pipe", "to-pipe");
    let tree = bed.store.insert_tree(&skill, &all()).unwrap();
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
    assert_eq!(tree.files()[3].variant(), Variant::Executable);
    let left: Vec<_> =
        tree.left_out().iter().map(|left| (left.path.to_str().unwrap(), left.reason)).collect();
    assert_eq!(
        left,
        [
            ("absolute", LeftOutReason::LeadsOut),
            ("dangling", LeftOutReason::Dangling),
            ("data/wrong", LeftOutReason::Dangling),
            ("magic", LeftOutReason::LeadsOut),
            ("out", LeftOutReason::LeadsOut),
            ("pipe", LeftOutReason::NotPlain),
            ("scripts/data/wrong", LeftOutReason::Dangling),
            ("scripts/up", LeftOutReason::Circle),
            ("self", LeftOutReason::Circle),
            ("to-pipe", LeftOutReason::NotPlain),
        ]
    );
    assert!(!bed.store.contains(&Digest::of(b"secret"), Variant::Plain).unwrap());
}

/// The kernel gives up a path that leads upwards when anything on the machine is renamed meanwhile.
#[test]
fn links_upwards_are_followed_while_others_rename() {
    let bed = Bed::new();
    let skill = skill(&bed);
    for number in 0..100 {
        symlink("../../SKILL.md", skill.join(format!("scripts/data/{number}"))).unwrap();
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let (one, other) = (elsewhere.path().join("one"), elsewhere.path().join("other"));
    fs::create_dir(&one).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::rename(&one, &other).unwrap();
                fs::rename(&other, &one).unwrap();
            }
        });
        let inserted: Vec<_> = (0..10).map(|_| bed.store.insert_tree(&skill, &all())).collect();
        done.store(true, Ordering::Relaxed);
        for tree in inserted {
            assert_eq!(tree.unwrap().files().len(), 103);
        }
    });
}

#[test]
fn the_bounds_hold() {
    let bed = Bed::new();
    let skill = skill(&bed);
    let refused = |options: TreeOptions| {
        let error = bed.store.insert_tree(&skill, &options).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::TooMuch);
        error.to_string()
    };
    assert!(bed.store.insert_tree(&skill, &TreeOptions { entries: 5, bytes: 22, depth: 3, ..all() }).is_ok());
    assert!(refused(TreeOptions { entries: 4, ..all() }).contains("more than 4 entries"));
    assert!(refused(TreeOptions { bytes: 21, ..all() }).contains("more than 21 bytes"));
    assert!(refused(TreeOptions { depth: 2, ..all() }).contains("more than 2 levels of folders"));
    // A thousand folders that lead to each other: two to the power of thirty paths.
    for depth in 0..30 {
        let folder = skill.join(depth.to_string());
        fs::create_dir(&folder).unwrap();
        for name in ["a", "b"] {
            symlink(format!("../{}", depth + 1), folder.join(name)).unwrap();
        }
    }
    refused(all());
    bed.assert_tidy();
}

#[test]
fn excluded_names_are_left_out_wherever_they_are() {
    let bed = Bed::new();
    let skill = skill(&bed);
    bed.file("skill/.git/config", b"x");
    bed.file("skill/scripts/.git", b"gitdir: elsewhere");
    let options = TreeOptions { exclude: vec![".git".into()], ..all() };
    assert_eq!(bed.store.insert_tree(&skill, &options).unwrap().files().len(), 3);
    assert_eq!(bed.store.insert_tree(&skill, &all()).unwrap().files().len(), 5);
}

#[test]
fn names_may_hold_anything() {
    let bed = Bed::new();
    let skill = skill(&bed);
    let odd = OsString::from_vec(b"new\nline \xff:-".to_vec());
    fs::write(skill.join(&odd), "odd").unwrap();
    let tree = bed.store.insert_tree(&skill, &all()).unwrap();
    assert_eq!(tree.files()[1].path(), Path::new(&odd));
    let (place, folder) = bed.folder("place");
    bed.store.link_tree(&tree, &folder).unwrap();
    assert_eq!(fs::read(place.join(&odd)).unwrap(), b"odd");
}

/// Whether the file at `path` is opened while `act` runs.
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
fn a_second_use_opens_nothing() {
    let bed = Bed::ahead();
    let skill = skill(&bed);
    let file = skill.join("SKILL.md");
    let insert = || bed.store.insert_tree(&skill, &all()).unwrap();
    let first = insert();
    assert!(!is_opened(&file, || assert_eq!(insert(), first)));
    // What changed is read again, also when its size and date are as before.
    let date = fs::metadata(&file).unwrap().modified().unwrap();
    let_time_pass(&bed, &file);
    fs::write(&file, "# World\n").unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(date).unwrap();
    assert!(is_opened(&file, || assert_ne!(insert().digest(), first.digest())));
    assert!(!is_opened(&file, || drop(insert())));
    // And what was collected.
    bed.store.remove(&Digest::of(b"# World\n")).unwrap();
    assert!(is_opened(&file, || drop(insert())));
    assert!(bed.store.contains(&Digest::of(b"# World\n"), Variant::Plain).unwrap());
}

/// It could change again without showing it: the kernel's times have steps.
#[test]
fn a_file_that_was_just_changed_is_not_remembered() {
    let bed = Bed::at(SystemClock.timestamp());
    let skill = skill(&bed);
    let insert = || drop(bed.store.insert_tree(&skill, &all()).unwrap());
    insert();
    assert!(is_opened(&skill.join("SKILL.md"), insert));
}

#[test]
fn many_new_files_are_flushed_together() {
    let bed = Bed::with(conjure_store::StoreOptions::default());
    for number in 0..150 {
        bed.file(&format!("skill/{number:03}"), number.to_string().as_bytes());
    }
    let tree = bed.store.insert_tree(&bed.path("skill"), &all()).unwrap();
    assert_eq!((tree.files().len(), bed.store.usage().unwrap().contents), (150, 150));
    bed.assert_tidy();
}

#[test]
fn a_tree_whose_content_is_gone_is_not_linked() {
    let bed = Bed::new();
    let tree = bed.store.insert_tree(&skill(&bed), &all()).unwrap();
    bed.store.remove(&Digest::of(b"a,b\n")).unwrap();
    let (_, folder) = bed.folder("place");
    assert_eq!(bed.store.link_tree(&tree, &folder).unwrap_err().kind(), StoreErrorKind::NotFound);
}

#[test]
fn a_folder_that_is_none_or_missing_is_named() {
    let bed = Bed::new();
    let file = bed.file("file", b"");
    for path in [bed.path("missing"), file] {
        let error = bed.store.insert_tree(&path, &all()).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

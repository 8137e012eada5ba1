//! Files that are none, folders that are no stores.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use conjure_store::{Store, StoreErrorKind, Variant};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::{Bed, set_mode};

fn refusal(store: &Store, path: &Path) -> StoreErrorKind {
    store.insert_file(path, Variant::Plain, 1_000_000).unwrap_err().kind()
}

/// A pipe that nobody writes to is not waited for.
#[test]
fn only_plain_files_are_inserted() {
    let bed = Bed::new();
    let pipe = bed.path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let socket = bed.path("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    for path in [&pipe, &socket, Path::new("/dev/zero"), bed.folder.path()] {
        assert_eq!(refusal(&bed.store, path), StoreErrorKind::NotPlain, "{}", path.display());
    }
    assert_eq!(refusal(&bed.store, &bed.path("missing")), StoreErrorKind::NotFound);
    // It says it is empty, and is not.
    assert_eq!(refusal(&bed.store, Path::new("/proc/self/status")), StoreErrorKind::Changed);
    bed.assert_tidy();
    assert_eq!(bed.store.usage().unwrap().contents, 0);
}

#[test]
fn a_file_is_taken_through_a_link_and_within_its_limit() {
    let bed = Bed::new();
    let file = bed.file("file", b"12345");
    symlink(&file, bed.path("link")).unwrap();
    assert!(bed.store.insert_file(&bed.path("link"), Variant::Plain, 5).unwrap().is_new);
    let error = bed.store.insert_file(&file, Variant::Plain, 4).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::TooMuch);
    assert!(error.to_string().contains("more than 4 bytes"), "{error}");
    // A sparse file of a terabyte is refused before it is read.
    fs::File::create(bed.path("sparse")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(refusal(&bed.store, &bed.path("sparse")), StoreErrorKind::TooMuch);
}

#[test]
fn a_folder_that_is_no_store_is_refused_and_left_alone() {
    let bed = Bed::new();
    let other = bed.file("other/file", b"mine");
    let error = Store::open(other.parent().unwrap()).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unusable);
    assert_eq!(fs::read_dir(other.parent().unwrap()).unwrap().count(), 2, "the file and the lock");
    let later = bed.file("later/version", b"conjure-store 2\n");
    set_mode(later.parent().unwrap(), 0o755);
    assert_eq!(Store::open(later.parent().unwrap()).unwrap_err().kind(), StoreErrorKind::Unusable);
    assert_eq!(Store::open(&other).unwrap_err().kind(), StoreErrorKind::Exists);
    let (open, _) = bed.folder("open");
    set_mode(&open, 0o777);
    let error = Store::open(&open).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unusable);
    assert!(error.to_string().contains("chmod go-w"), "{error}");
}

/// A crash in the middle of making a store does not spoil it.
#[test]
fn a_store_that_was_half_made_is_made() {
    let bed = Bed::new();
    bed.file("half/version.new", b"conj");
    bed.file("half/lock", b"");
    set_mode(&bed.path("half"), 0o700);
    let store = Store::open(&bed.path("half")).unwrap();
    assert!(store.insert_bytes(b"x", Variant::Plain).unwrap().is_new);
    assert_eq!(Store::open(&bed.path("half")).unwrap().usage().unwrap().contents, 1);
}

#[test]
fn what_else_lies_in_a_store_is_left_alone() {
    let bed = Bed::new();
    bed.store.insert_bytes(b"x", Variant::Plain).unwrap();
    for name in ["plain/README", "plain/zz", "plain/ab/short", "temporary/folder/file"] {
        let path = bed.store.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !path.exists() {
            fs::write(path, "?").unwrap();
        }
    }
    assert!(bed.store.root().join("plain/zz").is_file());
    fs::remove_file(bed.store.root().join("plain/zz")).unwrap();
    assert_eq!(bed.store.usage().unwrap().contents, 1);
    assert_eq!(bed.store.sweep().unwrap().removed, 0);
    assert_eq!(bed.store.collect(|_| true, conjure_base::Timestamp::from_millis(0)).unwrap().kept, 1);
    assert!(bed.store.root().join("temporary/folder/file").exists());
}

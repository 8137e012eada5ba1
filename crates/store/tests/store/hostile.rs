//! Special files, and directories that are no stores.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use conjure_store::{FileMode, Store, StoreErrorKind};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::{StoreFixture, set_mode};

fn refusal(store: &Store, path: &Path) -> StoreErrorKind {
    store.insert_file(path, FileMode::Plain, 1_000_000).unwrap_err().kind()
}

/// A pipe without a writer is refused without waiting.
#[test]
fn only_regular_files_are_inserted() {
    let fixture = StoreFixture::new();
    let pipe = fixture.path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let socket = fixture.path("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    for path in [&pipe, &socket, Path::new("/dev/zero"), fixture.dir.path()] {
        assert_eq!(refusal(&fixture.store, path), StoreErrorKind::NotRegularFile, "{}", path.display());
    }
    assert_eq!(refusal(&fixture.store, &fixture.path("missing")), StoreErrorKind::NotFound);
    // It reports a size of zero, and has content.
    assert_eq!(refusal(&fixture.store, Path::new("/proc/self/status")), StoreErrorKind::Changed);
    fixture.assert_tidy();
    assert_eq!(fixture.store.usage().unwrap().contents, 0);
}

#[test]
fn a_file_is_inserted_through_a_link_and_within_its_limit() {
    let fixture = StoreFixture::new();
    let file = fixture.file("file", b"12345");
    symlink(&file, fixture.path("link")).unwrap();
    assert!(fixture.store.insert_file(&fixture.path("link"), FileMode::Plain, 5).unwrap().is_new);
    let error = fixture.store.insert_file(&file, FileMode::Plain, 4).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::LimitExceeded);
    assert!(error.to_string().contains("more than 4 bytes"), "{error}");
    // A sparse file of a terabyte is refused before it is read.
    fs::File::create(fixture.path("sparse")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(refusal(&fixture.store, &fixture.path("sparse")), StoreErrorKind::LimitExceeded);
}

#[test]
fn a_directory_that_is_no_store_is_refused_and_unchanged() {
    let fixture = StoreFixture::new();
    let other = fixture.file("other/file", b"mine");
    let error = Store::open(other.parent().unwrap()).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unusable);
    assert_eq!(fs::read_dir(other.parent().unwrap()).unwrap().count(), 2, "the file and the lock");
    let later = fixture.file("later/version", b"conjure-store 2\n");
    set_mode(later.parent().unwrap(), 0o755);
    assert_eq!(Store::open(later.parent().unwrap()).unwrap_err().kind(), StoreErrorKind::Unusable);
    assert_eq!(Store::open(&other).unwrap_err().kind(), StoreErrorKind::Exists);
    let (open, _) = fixture.dir("open");
    set_mode(&open, 0o777);
    let error = Store::open(&open).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unusable);
    assert!(error.to_string().contains("chmod go-w"), "{error}");
}

/// A crash during the creation of a store does no harm.
#[test]
fn a_partly_created_store_is_completed() {
    let fixture = StoreFixture::new();
    fixture.file("half/version.new", b"conj");
    fixture.file("half/lock", b"");
    set_mode(&fixture.path("half"), 0o700);
    let store = Store::open(&fixture.path("half")).unwrap();
    assert!(store.insert_bytes(b"x", FileMode::Plain).unwrap().is_new);
    assert_eq!(Store::open(&fixture.path("half")).unwrap().usage().unwrap().contents, 1);
}

#[test]
fn foreign_files_in_a_store_stay() {
    let fixture = StoreFixture::new();
    fixture.store.insert_bytes(b"x", FileMode::Plain).unwrap();
    for name in ["plain/README", "plain/zz", "plain/ab/short", "temporary/directory/file"] {
        let path = fixture.store.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !path.exists() {
            fs::write(path, "?").unwrap();
        }
    }
    assert!(fixture.store.root().join("plain/zz").is_file());
    fs::remove_file(fixture.store.root().join("plain/zz")).unwrap();
    assert_eq!(fixture.store.usage().unwrap().contents, 1);
    assert_eq!(fixture.store.sweep().unwrap().removed, 0);
    assert_eq!(
        fixture.store.collect_garbage(|_| true, conjure_base::Timestamp::from_millis(0)).unwrap().kept,
        1
    );
    assert!(fixture.store.root().join("temporary/directory/file").exists());
}

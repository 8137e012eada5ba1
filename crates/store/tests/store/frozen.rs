//! Frozen links, with promises kept and broken, and contents of other stores.

use std::cell::Cell;
use std::fs::{self, File, FileTimes};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use conjure_base::{Clock as _, Digest, SystemClock, Timestamp};
use conjure_store::{
    Durability, FileMode, InsertResult, LinkMethod, Store, StoreErrorKind, StoreOptions, Verify,
};

use crate::support::{StoreFixture, let_time_pass, mode, open, set_mode};

const GO_ON: &dyn Fn() -> bool = &|| true;

fn freeze(store: &Store, path: &Path) -> (InsertResult, LinkMethod) {
    store.insert_link(File::open(path).unwrap().into(), path, u64::MAX, GO_ON).unwrap()
}

fn bytes(store: &Store, digest: &Digest) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.get(digest, Verify::Yes).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// Changes a file in place and keeps its size, so that only its time shows the change.
fn change(path: &Path) {
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all(b"X").unwrap();
    file.set_times(FileTimes::new().set_modified(std::time::UNIX_EPOCH)).unwrap();
}

fn in_an_hour() -> Timestamp {
    Timestamp::from_millis(SystemClock.timestamp().millis() + 3_600_000)
}

#[test]
fn a_frozen_file_is_linked_and_used_like_a_content() {
    let fixture = StoreFixture::new();
    let path = fixture.file("report.csv", &vec![b'x'; 3 << 20]);
    let (inserted, linked) = freeze(&fixture.store, &path);
    assert_eq!((inserted.size, inserted.is_new, linked), (3 << 20, true, LinkMethod::HardLink));
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 2);
    assert!(
        !fixture.store.contains(&inserted.digest, FileMode::Plain).unwrap(),
        "it is no content of its own"
    );
    assert_eq!(fixture.store.size(&inserted.digest).unwrap(), Some(3 << 20));
    assert_eq!(bytes(&fixture.store, &inserted.digest).len(), 3 << 20);
    assert_eq!(fixture.store.digests().unwrap(), [(inserted.digest, FileMode::Plain)]);
    assert_eq!(fixture.store.usage().unwrap().contents, 1);

    let (place, folder) = fixture.folder("place");
    let linked = fixture.store.link_into(&inserted.digest, FileMode::Plain, &folder, Path::new("a")).unwrap();
    assert_eq!(linked, LinkMethod::HardLink);
    assert_eq!(fs::metadata(place.join("a")).unwrap().ino(), fs::metadata(&path).unwrap().ino());
    let absent = fixture.store.link_into(&inserted.digest, FileMode::Executable, &folder, Path::new("b"));
    assert_eq!(absent.unwrap_err().kind(), StoreErrorKind::NotFound);

    let (again, _) = freeze(&fixture.store, &path);
    assert!(!again.is_new);
    fs::remove_file(&path).unwrap();
    assert_eq!(bytes(&fixture.store, &inserted.digest).len(), 3 << 20, "it may be removed");
    assert!(fixture.store.remove(&inserted.digest).unwrap());
    assert_eq!(fixture.store.size(&inserted.digest).unwrap(), None);
    fixture.assert_tidy();
}

#[test]
fn links_are_synced_where_durability_demands_it() {
    for durability in [Durability::Content, Durability::Name] {
        let fixture = StoreFixture::with(StoreOptions { durability, ..StoreOptions::default() });
        let path = fixture.file("a", b"hello");
        assert_eq!(freeze(&fixture.store, &path).1, LinkMethod::HardLink);
        assert_eq!(bytes(&fixture.store, &Digest::of_bytes(b"hello")), b"hello");
    }
}

#[test]
fn a_changed_frozen_file_is_an_error_at_the_next_use() {
    let fixture = StoreFixture::new();
    let path = fixture.file("a", b"hello");
    set_mode(&path, 0o644);
    let digest = freeze(&fixture.store, &path).0.digest;
    let open_before = fixture.store.get(&digest, Verify::No);
    assert!(open_before.is_ok());
    change(&path);
    let (_, folder) = fixture.folder("place");
    let refused = |kind| assert_eq!(kind, StoreErrorKind::Corrupt);
    refused(fixture.store.get(&digest, Verify::No).unwrap_err().kind());
    refused(fixture.store.size(&digest).unwrap_err().kind());
    let linked = fixture.store.link_into(&digest, FileMode::Plain, &folder, Path::new("a"));
    let error = linked.unwrap_err();
    assert!(error.to_string().contains("changed since; insert it again"), "{error}");
    refused(error.kind());
    // A new insertion gives another content.
    let (again, _) = freeze(&fixture.store, &path);
    assert_eq!(again.digest, Digest::of_bytes(b"Xello"));
    assert_eq!(bytes(&fixture.store, &again.digest), b"Xello");
    // With the old bytes and time the old link would be valid again; with the current time it is a new link.
    let_time_pass(&fixture, &path);
    fs::write(&path, b"hello").unwrap();
    let (back, _) = freeze(&fixture.store, &path);
    assert_eq!((back.digest, back.is_new), (digest, true));
    assert_eq!(bytes(&fixture.store, &digest), b"hello", "the link that is not good any more is passed over");
}

#[test]
fn a_frozen_link_does_not_affect_other_insertions() {
    let fixture = StoreFixture::new();
    let (first, second) = (fixture.file("first", b"hello"), fixture.file("second", b"hello"));
    let digest = freeze(&fixture.store, &first).0.digest;
    // One of two files with the same bytes changes.
    assert!(freeze(&fixture.store, &second).0.is_new);
    change(&first);
    assert_eq!(bytes(&fixture.store, &digest), b"hello");
    // An insertion of the bytes gives a content that no change of the file reaches.
    assert!(fixture.store.insert_bytes(b"hello", FileMode::Plain).unwrap().is_new);
    change(&second);
    assert_eq!(bytes(&fixture.store, &digest), b"hello");
    let (_, folder) = fixture.folder("place");
    fixture.store.link_into(&digest, FileMode::Plain, &folder, Path::new("a")).unwrap();
    // Where such a content exists, nothing is linked.
    let third = fixture.file("third", b"hello");
    assert!(!freeze(&fixture.store, &third).0.is_new);
    assert_eq!(fs::metadata(&third).unwrap().nlink(), 1);
}

#[test]
fn files_that_cannot_be_linked_are_copied() {
    let fixture = StoreFixture::new();
    for (name, bits) in [("private", 0o600), ("setuid", 0o4755), ("group", 0o440)] {
        let path = fixture.file(name, name.as_bytes());
        set_mode(&path, bits);
        let (inserted, linked) = freeze(&fixture.store, &path);
        assert_eq!(linked, LinkMethod::Copy, "{name}");
        assert!(fixture.store.contains(&inserted.digest, FileMode::Plain).unwrap());
        assert_eq!((mode(&path), fs::metadata(&path).unwrap().nlink()), (bits, 1));
    }
    // A file without a name cannot be linked. This also holds for a large one, which is read in chunks.
    for size in [5, 3 << 20] {
        let path = fixture.file("unnamed", &vec![b'u'; size]);
        let file = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (inserted, linked) = fixture.store.insert_link(file.into(), &path, u64::MAX, GO_ON).unwrap();
        assert_eq!((linked, inserted.size), (LinkMethod::Copy, size as u64));
        assert_eq!(bytes(&fixture.store, &inserted.digest), vec![b'u'; size]);
    }
    // Another file system: the machine's memory, where it has one.
    if let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") {
        let path = elsewhere.path().join("a");
        fs::write(&path, "elsewhere").unwrap();
        if fs::metadata(&path).unwrap().dev() != fs::metadata(fixture.store.root()).unwrap().dev() {
            assert_eq!(freeze(&fixture.store, &path).1, LinkMethod::Copy);
        }
        let here = fixture.file("here", b"here");
        let digest = freeze(&fixture.store, &here).0.digest;
        let folder = open(elsewhere.path());
        fixture.store.link_into(&digest, FileMode::Plain, &folder, Path::new("copy")).unwrap();
        assert_eq!(fs::read(elsewhere.path().join("copy")).unwrap(), b"here");
    }
    fixture.assert_tidy();
}

#[test]
fn a_cancelled_insertion_leaves_nothing() {
    let fixture = StoreFixture::new();
    let path = fixture.file("large", &vec![b'l'; 8 << 20]);
    set_mode(&path, 0o644);
    // The number of calls: a third of the first reading, and once after the second has begun.
    for after in [0, 20, 70] {
        let left = Cell::new(after);
        let go_on = || {
            left.set(left.get() - 1);
            left.get() >= 0
        };
        let copied = fixture.store.insert_file_handle_cancellable(
            File::open(&path).unwrap().into(),
            &path,
            FileMode::Plain,
            u64::MAX,
            &go_on,
        );
        assert_eq!(copied.unwrap_err().kind(), StoreErrorKind::Cancelled, "after {after} pieces");
        left.set(after.min(20));
        let linked = fixture.store.insert_link(File::open(&path).unwrap().into(), &path, u64::MAX, &go_on);
        assert_eq!(linked.unwrap_err().kind(), StoreErrorKind::Cancelled, "after {after} pieces");
        assert_eq!(fixture.store.usage().unwrap().contents, 0);
        fixture.assert_tidy();
    }
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
}

#[test]
fn frozen_links_are_collected_by_their_last_use() {
    let fixture = StoreFixture::new();
    let (kept, gone) = (fixture.file("kept", b"kept"), fixture.file("gone", b"gone"));
    let (kept, gone_digest) =
        (freeze(&fixture.store, &kept).0.digest, freeze(&fixture.store, &gone).0.digest);
    let long_ago = Timestamp::from_millis(0);
    assert_eq!(
        fixture.store.collect_garbage(|_| false, long_ago).unwrap().removed,
        0,
        "they were linked since"
    );
    let collected = fixture.store.collect_garbage(|digest| *digest == kept, in_an_hour()).unwrap();
    assert_eq!((collected.removed, collected.kept, collected.bytes), (1, 1, 0), "its owner has it still");
    assert_eq!(fixture.store.size(&gone_digest).unwrap(), None);
    assert_eq!(fs::read(&gone).unwrap(), b"gone");
}

#[test]
fn a_lookup_defers_the_collection_of_a_frozen_link() {
    // By the store's clock nothing was marked recently.
    let fixture = StoreFixture::ahead();
    let file = fixture.file("report", b"report");
    let digest = freeze(&fixture.store, &file).0.digest;
    let asks: [&dyn Fn(); 5] = [
        &|| assert_eq!(fixture.store.size(&digest).unwrap(), Some(6)),
        &|| assert!(fixture.store.path(&digest).unwrap().is_some()),
        &|| assert_eq!(bytes(&fixture.store, &digest), b"report"),
        &|| assert!(!freeze(&fixture.store, &file).0.is_new),
        &|| assert!(!fixture.store.insert_from_store(&fixture.store, &digest, 99, GO_ON).unwrap().is_new),
    ];
    for (at, ask) in asks.iter().enumerate() {
        let later = Timestamp::from_millis(let_time_pass(&fixture, &file) + 1);
        ask();
        assert_eq!(fixture.store.collect_garbage(|_| false, later).unwrap().removed, 0, "{at}");
    }
    fixture.assert_tidy();
    assert_eq!(fs::metadata(&file).unwrap().nlink(), 2);
    let later = Timestamp::from_millis(let_time_pass(&fixture, &file) + 1);
    assert_eq!(fixture.store.collect_garbage(|_| false, later).unwrap().removed, 1);
}

#[test]
fn content_of_another_store_is_linked_or_copied_and_verified() {
    let (fixture, other) = (StoreFixture::new(), StoreFixture::new());
    let digest = other.store.insert_bytes(b"hello", FileMode::Plain).unwrap().digest;
    let script = other.store.insert_bytes(b"#!/bin/sh\n", FileMode::Executable).unwrap().digest;
    let take = |digest: &Digest, limit| fixture.store.insert_from_store(&other.store, digest, limit, GO_ON);
    assert_eq!(take(&digest, 4).unwrap_err().kind(), StoreErrorKind::LimitExceeded);
    assert!(take(&digest, 5).unwrap().is_new);
    assert!(!take(&digest, 5).unwrap().is_new);
    assert_eq!(bytes(&fixture.store, &digest), b"hello");
    assert!(take(&script, 99).unwrap().is_new);
    assert_eq!(mode(&fixture.store.root().join(format!("plain/{}", path_of(&script)))), 0o444);
    assert_eq!(take(&Digest::of_bytes(b"absent"), 99).unwrap_err().kind(), StoreErrorKind::NotFound);
    assert!(!other.store.insert_from_store(&other.store, &digest, 99, GO_ON).unwrap().is_new);
    let frozen = freeze(&other.store, &other.file("frozen", b"frozen")).0.digest;
    assert!(take(&frozen, 99).unwrap().is_new);
    assert!(fixture.store.contains(&frozen, FileMode::Plain).unwrap(), "what another's word holds is copied");
    assert!(!other.store.insert_from_store(&other.store, &frozen, 99, GO_ON).unwrap().is_new);
    assert!(!other.store.contains(&frozen, FileMode::Plain).unwrap(), "in its own store the link does");
    // A content that is only executable does not count as a plain one.
    assert!(other.store.insert_from_store(&other.store, &script, 99, GO_ON).unwrap().is_new);
    assert!(other.store.contains(&script, FileMode::Plain).unwrap());
    assert!(!other.store.insert_from_store(&other.store, &script, 99, GO_ON).unwrap().is_new);
    fixture.assert_tidy();
    other.assert_tidy();
}

fn path_of(digest: &Digest) -> String {
    let hex = digest.to_hex();
    format!("{}/{}", &hex[..2], &hex[2..])
}

#[test]
fn copies_and_paths_work_for_every_stored_form() {
    let fixture = StoreFixture::new();
    let path = fixture.file("report.csv", b"frozen");
    let (frozen, _) = freeze(&fixture.store, &path);
    let plain = fixture.store.insert_bytes(b"plain", FileMode::Plain).unwrap();
    let executable = fixture.store.insert_bytes(b"run", FileMode::Executable).unwrap();
    let (place, folder) = fixture.folder("place");
    for (name, inserted) in [("frozen", frozen), ("plain", plain), ("run", executable)] {
        fixture.store.copy_into(&inserted.digest, FileMode::Plain, &folder, Path::new(name)).unwrap();
        let taken = fixture.store.copy_into(&inserted.digest, FileMode::Plain, &folder, Path::new(name));
        assert_eq!(taken.unwrap_err().kind(), StoreErrorKind::Exists);
        let copy = place.join(name);
        assert_eq!((fs::metadata(&copy).unwrap().nlink(), mode(&copy)), (1, 0o444));
        // A change of the copy does not change the store's file.
        set_mode(&copy, 0o644);
        fs::write(&copy, "changed").unwrap();
        let lies_at = fixture.store.path(&inserted.digest).unwrap().unwrap();
        assert_eq!(fs::read(lies_at).unwrap(), bytes(&fixture.store, &inserted.digest));
        assert_ne!(bytes(&fixture.store, &inserted.digest), b"changed");
    }
    let absent = Digest::of_bytes(b"absent");
    assert_eq!(fixture.store.path(&absent).unwrap(), None);
    let error = fixture.store.copy_into(&absent, FileMode::Plain, &folder, Path::new("absent")).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotFound);
    assert!(fixture.store.copy_into(&plain.digest, FileMode::Plain, &folder, Path::new("../x")).is_err());
    assert!(
        !fs::read_dir(&place)
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().starts_with(".conjure") })
    );
}

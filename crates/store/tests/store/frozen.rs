//! Files that are linked instead of copied, kept promises and broken ones; and contents of other stores.

use std::cell::Cell;
use std::fs::{self, File, FileTimes};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use conjure_base::{Clock as _, Digest, SystemClock, Timestamp};
use conjure_store::{Durability, Inserted, Linked, Store, StoreErrorKind, StoreOptions, Variant, Verify};

use crate::support::{Bed, let_time_pass, mode, open, set_mode};

const GO_ON: &dyn Fn() -> bool = &|| true;

fn freeze(store: &Store, path: &Path) -> (Inserted, Linked) {
    store.insert_link(File::open(path).unwrap().into(), path, u64::MAX, GO_ON).unwrap()
}

fn bytes(store: &Store, digest: &Digest) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.get(digest, Verify::Yes).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// Changes a file in place, keeping its size, so that its date shows it.
fn change(path: &Path) {
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all(b"X").unwrap();
    file.set_times(FileTimes::new().set_modified(std::time::UNIX_EPOCH)).unwrap();
}

fn in_an_hour() -> Timestamp {
    Timestamp::from_millis(SystemClock.timestamp().millis() + 3_600_000)
}

#[test]
fn a_frozen_file_is_linked_and_serves_like_a_content() {
    let bed = Bed::new();
    let path = bed.file("report.csv", &vec![b'x'; 3 << 20]);
    let (inserted, linked) = freeze(&bed.store, &path);
    assert_eq!((inserted.size, inserted.is_new, linked), (3 << 20, true, Linked::Hard));
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 2);
    assert!(!bed.store.contains(&inserted.digest, Variant::Plain).unwrap(), "it is no content of its own");
    assert_eq!(bed.store.size(&inserted.digest).unwrap(), Some(3 << 20));
    assert_eq!(bytes(&bed.store, &inserted.digest).len(), 3 << 20);
    assert_eq!(bed.store.digests().unwrap(), [(inserted.digest, Variant::Plain)]);
    assert_eq!(bed.store.usage().unwrap().contents, 1);

    let (place, folder) = bed.folder("place");
    let linked = bed.store.link_into(&inserted.digest, Variant::Plain, &folder, Path::new("a")).unwrap();
    assert_eq!(linked, Linked::Hard);
    assert_eq!(fs::metadata(place.join("a")).unwrap().ino(), fs::metadata(&path).unwrap().ino());
    let absent = bed.store.link_into(&inserted.digest, Variant::Executable, &folder, Path::new("b"));
    assert_eq!(absent.unwrap_err().kind(), StoreErrorKind::NotFound);

    let (again, _) = freeze(&bed.store, &path);
    assert!(!again.is_new);
    fs::remove_file(&path).unwrap();
    assert_eq!(bytes(&bed.store, &inserted.digest).len(), 3 << 20, "it may be removed");
    assert!(bed.store.remove(&inserted.digest).unwrap());
    assert_eq!(bed.store.size(&inserted.digest).unwrap(), None);
    bed.assert_tidy();
}

#[test]
fn links_may_wait_for_the_disk() {
    for durability in [Durability::Content, Durability::Name] {
        let bed = Bed::with(StoreOptions { durability, ..StoreOptions::default() });
        let path = bed.file("a", b"hello");
        assert_eq!(freeze(&bed.store, &path).1, Linked::Hard);
        assert_eq!(bytes(&bed.store, &Digest::of(b"hello")), b"hello");
    }
}

#[test]
fn a_broken_promise_is_an_error_at_the_next_use() {
    let bed = Bed::new();
    let path = bed.file("a", b"hello");
    set_mode(&path, 0o644);
    let digest = freeze(&bed.store, &path).0.digest;
    let open_before = bed.store.get(&digest, Verify::No);
    assert!(open_before.is_ok());
    change(&path);
    let (_, folder) = bed.folder("place");
    let refused = |kind| assert_eq!(kind, StoreErrorKind::Corrupt);
    refused(bed.store.get(&digest, Verify::No).unwrap_err().kind());
    refused(bed.store.size(&digest).unwrap_err().kind());
    let linked = bed.store.link_into(&digest, Variant::Plain, &folder, Path::new("a"));
    let error = linked.unwrap_err();
    assert!(error.to_string().contains("changed since; insert it again"), "{error}");
    refused(error.kind());
    // Inserted again it is another content.
    let (again, _) = freeze(&bed.store, &path);
    assert_eq!(again.digest, Digest::of(b"Xello"));
    assert_eq!(bytes(&bed.store, &again.digest), b"Xello");
    // With the old bytes and date it would be what it was; with the date of now it is a new link.
    let_time_pass(&bed, &path);
    fs::write(&path, b"hello").unwrap();
    let (back, _) = freeze(&bed.store, &path);
    assert_eq!((back.digest, back.is_new), (digest, true));
    assert_eq!(bytes(&bed.store, &digest), b"hello", "the link that is not good any more is passed over");
}

#[test]
fn a_promise_binds_nobody_else() {
    let bed = Bed::new();
    let (first, second) = (bed.file("first", b"hello"), bed.file("second", b"hello"));
    let digest = freeze(&bed.store, &first).0.digest;
    // Of two files with the same bytes one changes.
    assert!(freeze(&bed.store, &second).0.is_new);
    change(&first);
    assert_eq!(bytes(&bed.store, &digest), b"hello");
    // Who inserts the bytes gets a content that no file's change reaches.
    assert!(bed.store.insert_bytes(b"hello", Variant::Plain).unwrap().is_new);
    change(&second);
    assert_eq!(bytes(&bed.store, &digest), b"hello");
    let (_, folder) = bed.folder("place");
    bed.store.link_into(&digest, Variant::Plain, &folder, Path::new("a")).unwrap();
    // And where there is such a content, nothing is linked.
    let third = bed.file("third", b"hello");
    assert!(!freeze(&bed.store, &third).0.is_new);
    assert_eq!(fs::metadata(&third).unwrap().nlink(), 1);
}

#[test]
fn what_cannot_be_linked_is_copied() {
    let bed = Bed::new();
    for (name, bits) in [("private", 0o600), ("setuid", 0o4755), ("group", 0o440)] {
        let path = bed.file(name, name.as_bytes());
        set_mode(&path, bits);
        let (inserted, linked) = freeze(&bed.store, &path);
        assert_eq!(linked, Linked::Copied, "{name}");
        assert!(bed.store.contains(&inserted.digest, Variant::Plain).unwrap());
        assert_eq!((mode(&path), fs::metadata(&path).unwrap().nlink()), (bits, 1));
    }
    // Of a file that has no name any more there can be no link; also a large one, which is read in pieces.
    for size in [5, 3 << 20] {
        let path = bed.file("unnamed", &vec![b'u'; size]);
        let file = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (inserted, linked) = bed.store.insert_link(file.into(), &path, u64::MAX, GO_ON).unwrap();
        assert_eq!((linked, inserted.size), (Linked::Copied, size as u64));
        assert_eq!(bytes(&bed.store, &inserted.digest), vec![b'u'; size]);
    }
    // Another file system: the machine's memory, where it has one.
    if let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") {
        let path = elsewhere.path().join("a");
        fs::write(&path, "elsewhere").unwrap();
        if fs::metadata(&path).unwrap().dev() != fs::metadata(bed.store.root()).unwrap().dev() {
            assert_eq!(freeze(&bed.store, &path).1, Linked::Copied);
        }
        let here = bed.file("here", b"here");
        let digest = freeze(&bed.store, &here).0.digest;
        let folder = open(elsewhere.path());
        bed.store.link_into(&digest, Variant::Plain, &folder, Path::new("copy")).unwrap();
        assert_eq!(fs::read(elsewhere.path().join("copy")).unwrap(), b"here");
    }
    bed.assert_tidy();
}

#[test]
fn an_insertion_that_is_called_off_leaves_nothing() {
    let bed = Bed::new();
    let path = bed.file("large", &vec![b'l'; 8 << 20]);
    set_mode(&path, 0o644);
    // So often it is asked: a third of the first reading, and once the second has begun.
    for after in [0, 20, 70] {
        let left = Cell::new(after);
        let go_on = || {
            left.set(left.get() - 1);
            left.get() >= 0
        };
        let copied = bed.store.insert_open_while(
            File::open(&path).unwrap().into(),
            &path,
            Variant::Plain,
            u64::MAX,
            &go_on,
        );
        assert_eq!(copied.unwrap_err().kind(), StoreErrorKind::Stopped, "after {after} pieces");
        left.set(after.min(20));
        let linked = bed.store.insert_link(File::open(&path).unwrap().into(), &path, u64::MAX, &go_on);
        assert_eq!(linked.unwrap_err().kind(), StoreErrorKind::Stopped, "after {after} pieces");
        assert_eq!(bed.store.usage().unwrap().contents, 0);
        bed.assert_tidy();
    }
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
}

#[test]
fn frozen_links_are_collected_by_their_last_use() {
    let bed = Bed::new();
    let (kept, gone) = (bed.file("kept", b"kept"), bed.file("gone", b"gone"));
    let (kept, gone_digest) = (freeze(&bed.store, &kept).0.digest, freeze(&bed.store, &gone).0.digest);
    let long_ago = Timestamp::from_millis(0);
    assert_eq!(bed.store.collect(|_| false, long_ago).unwrap().removed, 0, "they were linked since");
    let collected = bed.store.collect(|digest| *digest == kept, in_an_hour()).unwrap();
    assert_eq!((collected.removed, collected.kept, collected.bytes), (1, 1, 0), "its owner has it still");
    assert_eq!(bed.store.size(&gone_digest).unwrap(), None);
    assert_eq!(fs::read(&gone).unwrap(), b"gone");
}

#[test]
fn a_frozen_link_that_is_asked_for_is_not_collected_at_once() {
    // By its clock nothing was marked a moment ago.
    let bed = Bed::ahead();
    let file = bed.file("report", b"report");
    let digest = freeze(&bed.store, &file).0.digest;
    let asks: [&dyn Fn(); 5] = [
        &|| assert_eq!(bed.store.size(&digest).unwrap(), Some(6)),
        &|| assert!(bed.store.path(&digest).unwrap().is_some()),
        &|| assert_eq!(bytes(&bed.store, &digest), b"report"),
        &|| assert!(!freeze(&bed.store, &file).0.is_new),
        &|| assert!(!bed.store.insert_from(&bed.store, &digest, 99, GO_ON).unwrap().is_new),
    ];
    for (at, ask) in asks.iter().enumerate() {
        let later = Timestamp::from_millis(let_time_pass(&bed, &file) + 1);
        ask();
        assert_eq!(bed.store.collect(|_| false, later).unwrap().removed, 0, "{at}");
    }
    bed.assert_tidy();
    assert_eq!(fs::metadata(&file).unwrap().nlink(), 2);
    let later = Timestamp::from_millis(let_time_pass(&bed, &file) + 1);
    assert_eq!(bed.store.collect(|_| false, later).unwrap().removed, 1);
}

#[test]
fn a_content_of_another_store_is_linked_or_copied_but_never_believed() {
    let (bed, other) = (Bed::new(), Bed::new());
    let digest = other.store.insert_bytes(b"hello", Variant::Plain).unwrap().digest;
    let script = other.store.insert_bytes(b"#!/bin/sh\n", Variant::Executable).unwrap().digest;
    let take = |digest: &Digest, limit| bed.store.insert_from(&other.store, digest, limit, GO_ON);
    assert_eq!(take(&digest, 4).unwrap_err().kind(), StoreErrorKind::TooMuch);
    assert!(take(&digest, 5).unwrap().is_new);
    assert!(!take(&digest, 5).unwrap().is_new);
    assert_eq!(bytes(&bed.store, &digest), b"hello");
    assert!(take(&script, 99).unwrap().is_new);
    assert_eq!(mode(&bed.store.root().join(format!("plain/{}", path_of(&script)))), 0o444);
    assert_eq!(take(&Digest::of(b"absent"), 99).unwrap_err().kind(), StoreErrorKind::NotFound);
    assert!(!other.store.insert_from(&other.store, &digest, 99, GO_ON).unwrap().is_new);
    let frozen = freeze(&other.store, &other.file("frozen", b"frozen")).0.digest;
    assert!(take(&frozen, 99).unwrap().is_new);
    assert!(bed.store.contains(&frozen, Variant::Plain).unwrap(), "what another's word holds is copied");
    assert!(!other.store.insert_from(&other.store, &frozen, 99, GO_ON).unwrap().is_new);
    assert!(!other.store.contains(&frozen, Variant::Plain).unwrap(), "in its own store the link does");
    // What is there as an executable only is no plain content yet.
    assert!(other.store.insert_from(&other.store, &script, 99, GO_ON).unwrap().is_new);
    assert!(other.store.contains(&script, Variant::Plain).unwrap());
    assert!(!other.store.insert_from(&other.store, &script, 99, GO_ON).unwrap().is_new);
    bed.assert_tidy();
    other.assert_tidy();
}

fn path_of(digest: &Digest) -> String {
    let hex = digest.to_hex();
    format!("{}/{}", &hex[..2], &hex[2..])
}

#[test]
fn a_copy_and_a_path_are_had_of_whatever_is_there() {
    let bed = Bed::new();
    let path = bed.file("report.csv", b"frozen");
    let (frozen, _) = freeze(&bed.store, &path);
    let plain = bed.store.insert_bytes(b"plain", Variant::Plain).unwrap();
    let executable = bed.store.insert_bytes(b"run", Variant::Executable).unwrap();
    let (place, folder) = bed.folder("place");
    for (name, inserted) in [("frozen", frozen), ("plain", plain), ("run", executable)] {
        bed.store.copy_into(&inserted.digest, Variant::Plain, &folder, Path::new(name)).unwrap();
        let taken = bed.store.copy_into(&inserted.digest, Variant::Plain, &folder, Path::new(name));
        assert_eq!(taken.unwrap_err().kind(), StoreErrorKind::Exists);
        let copy = place.join(name);
        assert_eq!((fs::metadata(&copy).unwrap().nlink(), mode(&copy)), (1, 0o444));
        // Whoever has the copy changes nothing of the store's.
        set_mode(&copy, 0o644);
        fs::write(&copy, "changed").unwrap();
        let lies_at = bed.store.path(&inserted.digest).unwrap().unwrap();
        assert_eq!(fs::read(lies_at).unwrap(), bytes(&bed.store, &inserted.digest));
        assert_ne!(bytes(&bed.store, &inserted.digest), b"changed");
    }
    let absent = Digest::of(b"absent");
    assert_eq!(bed.store.path(&absent).unwrap(), None);
    let error = bed.store.copy_into(&absent, Variant::Plain, &folder, Path::new("absent")).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotFound);
    assert!(bed.store.copy_into(&plain.digest, Variant::Plain, &folder, Path::new("../x")).is_err());
    assert!(
        !fs::read_dir(&place)
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().starts_with(".conjure") })
    );
}

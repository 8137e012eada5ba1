//! One content at a time: inserting, getting, linking, collecting.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use conjure_base::{Clock as _, Digest, SystemClock, Timestamp};
use conjure_store::{Durability, Linked, Store, StoreErrorKind, StoreOptions, Variant, Verify};

use crate::support::{Bed, mode, open};

/// A moment by which nothing was used, and one by which everything was.
const NEVER: Timestamp = Timestamp::from_millis(0);

fn in_an_hour() -> Timestamp {
    Timestamp::from_millis(SystemClock.timestamp().millis() + 3_600_000)
}

fn text(store: &Store, digest: &Digest) -> String {
    let mut text = String::new();
    store.get(digest, Verify::Yes).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn bytes_files_and_streams_come_out_as_they_went_in() {
    for durability in [Durability::Process, Durability::Content, Durability::Name] {
        let bed = Bed::with(StoreOptions { durability, ..StoreOptions::default() });
        let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).take(3_000_001).collect();
        for bytes in [&b""[..], b"hello", &large] {
            let digest = Digest::of(bytes);
            let file = bed.file("file", bytes);
            let inserted = bed.store.insert_file(&file, Variant::Plain, u64::MAX).unwrap();
            assert_eq!((inserted.digest, inserted.size, inserted.is_new), (digest, bytes.len() as u64, true));
            assert!(!bed.store.insert_bytes(bytes, Variant::Plain).unwrap().is_new);
            assert!(!bed.store.contains(&digest, Variant::Executable).unwrap());
            let mut insertion = bed.store.insertion(Variant::Executable, u64::MAX).unwrap();
            for piece in bytes.chunks(70_000) {
                insertion.write_all(piece).unwrap();
            }
            let inserted = insertion.finish().unwrap();
            assert_eq!((inserted.digest, inserted.size, inserted.is_new), (digest, bytes.len() as u64, true));
            let mut back = Vec::new();
            let mut content = bed.store.get(&digest, Verify::Yes).unwrap();
            assert_eq!(content.size(), bytes.len() as u64);
            content.read_to_end(&mut back).unwrap();
            assert_eq!(back, bytes);
            assert_eq!(bed.store.size(&digest).unwrap(), Some(bytes.len() as u64));
        }
        bed.assert_tidy();
        assert_eq!(bed.store.usage().unwrap().contents, 6);
    }
}

#[test]
fn the_variants_are_separate_files_that_nobody_may_write() {
    let bed = Bed::new();
    let plain = bed.store.insert_bytes(b"#!/bin/sh\n", Variant::Plain).unwrap();
    let executable = bed.store.insert_bytes(b"#!/bin/sh\n", Variant::Executable).unwrap();
    assert_eq!(plain.digest, executable.digest);
    let (path, folder) = bed.folder("place");
    for (variant, name, expected) in
        [(Variant::Plain, "plain", 0o444), (Variant::Executable, "executable", 0o555)]
    {
        let linked = bed.store.link_into(&plain.digest, variant, &folder, Path::new(name)).unwrap();
        assert_eq!(linked, Linked::Hard);
        assert_eq!(mode(&path.join(name)), expected);
        assert_eq!(fs::metadata(path.join(name)).unwrap().nlink(), 2);
    }
}

#[test]
fn a_link_is_refused_where_something_is_and_for_what_is_not_there() {
    let bed = Bed::new();
    let there = bed.store.insert_bytes(b"there", Variant::Plain).unwrap().digest;
    let (path, folder) = bed.folder("place");
    fs::write(path.join("taken"), "mine").unwrap();
    let link = |digest: &Digest, name: &str| {
        bed.store.link_into(digest, Variant::Plain, &folder, Path::new(name)).map_err(|error| error.kind())
    };
    assert_eq!(link(&there, "taken"), Err(StoreErrorKind::Exists));
    assert_eq!(fs::read(path.join("taken")).unwrap(), b"mine");
    assert_eq!(link(&Digest::of(b"not there"), "name"), Err(StoreErrorKind::NotFound));
    for name in ["", ".", "..", "a/b", "/a", "a/"] {
        assert_eq!(link(&there, name), Err(StoreErrorKind::Io), "{name}");
    }
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
}

#[test]
fn what_lies_on_another_file_system_gets_copies() {
    let bed = Bed::new();
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    assert_ne!(device(elsewhere.path()), device(bed.folder.path()), "the machine has one file system only");
    let bytes = vec![7; 300_000];
    let digest = bed.store.insert_bytes(&bytes, Variant::Executable).unwrap().digest;
    let folder = open(elsewhere.path());
    let link = || bed.store.link_into(&digest, Variant::Executable, &folder, Path::new("copy"));
    assert_eq!(link().unwrap(), Linked::Copied);
    let copy = elsewhere.path().join("copy");
    assert_eq!((fs::read(&copy).unwrap(), mode(&copy)), (bytes, 0o555));
    assert_eq!(link().unwrap_err().kind(), StoreErrorKind::Exists);
    // The copy that was not wanted is gone.
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
}

/// A file can have so many names only: 65,000 on ext4.
#[test]
fn what_has_too_many_links_gets_copies() {
    const MORE_THAN_ANY: u32 = 66_000;
    let bed = Bed::new();
    let digest = bed.store.insert_bytes(b"popular", Variant::Plain).unwrap().digest;
    let (path, folder) = bed.folder("place");
    bed.store.link_into(&digest, Variant::Plain, &folder, Path::new("0")).unwrap();
    for number in 1..MORE_THAN_ANY {
        let (from, to) = (path.join("0"), path.join(number.to_string()));
        match fs::hard_link(from, to) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::TooManyLinks => break,
            Err(error) => panic!("{error}"),
        }
    }
    let links = fs::metadata(path.join("0")).unwrap().nlink();
    let linked = bed.store.link_into(&digest, Variant::Plain, &folder, Path::new("last")).unwrap();
    let expected = if links > u64::from(MORE_THAN_ANY) { Linked::Hard } else { Linked::Copied };
    assert_eq!(linked, expected);
    assert_eq!(fs::read(path.join("last")).unwrap(), b"popular");
}

#[test]
fn what_changed_on_the_disk_is_found_and_can_be_mended() {
    let bed = Bed::new();
    let digest = bed.store.insert_bytes(b"right", Variant::Plain).unwrap().digest;
    let hex = digest.to_hex();
    let path = bed.store.root().join("plain").join(&hex[..2]).join(&hex[2..]);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "wrong").unwrap();
    assert!(bed.store.get(&digest, Verify::No).is_ok());
    let error = bed.store.get(&digest, Verify::Yes).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
    assert!(error.to_string().contains(&digest.to_string()), "{error}");
    assert!(bed.store.remove(&digest).unwrap());
    assert!(!bed.store.remove(&digest).unwrap());
    assert_eq!(bed.store.get(&digest, Verify::No).unwrap_err().kind(), StoreErrorKind::NotFound);
    assert!(bed.store.insert_bytes(b"right", Variant::Plain).unwrap().is_new);
    assert_eq!(text(&bed.store, &digest), "right");
}

#[test]
fn what_is_neither_live_nor_in_use_is_collected() {
    let bed = Bed::new();
    let live = bed.store.insert_bytes(b"live", Variant::Plain).unwrap().digest;
    let dead = bed.store.insert_bytes(b"dead!", Variant::Plain).unwrap().digest;
    bed.store.insert_bytes(b"dead!", Variant::Executable).unwrap();
    let (path, folder) = bed.folder("place");
    bed.store.link_into(&dead, Variant::Plain, &folder, Path::new("linked")).unwrap();
    assert_eq!(bed.store.linked().unwrap(), [dead].into());
    let kept = bed.store.collect(|_| false, NEVER).unwrap();
    assert_eq!((kept.removed, kept.kept), (0, 3));
    let collected = bed.store.collect(|digest| *digest == live, in_an_hour()).unwrap();
    assert_eq!((collected.removed, collected.bytes, collected.kept), (2, 10, 1));
    assert_eq!(bed.store.digests().unwrap(), [(live, Variant::Plain)]);
    // What was linked stays.
    assert_eq!(fs::read(path.join("linked")).unwrap(), b"dead!");
}

#[test]
fn an_insertion_of_what_is_there_puts_its_collection_off() {
    let bed = Bed::new();
    let digest = bed.store.insert_bytes(b"old", Variant::Plain).unwrap().digest;
    let hex = digest.to_hex();
    let path = bed.store.root().join("plain").join(&hex[..2]).join(&hex[2..]);
    let age = || {
        let long_ago = fs::FileTimes::new().set_accessed(UNIX_EPOCH);
        fs::File::open(&path).unwrap().set_times(long_ago).unwrap();
    };
    let an_hour_ago = Timestamp::from_millis(SystemClock.timestamp().millis() - 3_600_000);
    let (_, folder) = bed.folder("place");
    age();
    assert!(!bed.store.insert_bytes(b"old", Variant::Plain).unwrap().is_new);
    assert_eq!(bed.store.collect(|_| false, an_hour_ago).unwrap().removed, 0);
    age();
    bed.store.link_into(&digest, Variant::Plain, &folder, Path::new("use")).unwrap();
    assert_eq!(bed.store.collect(|_| false, an_hour_ago).unwrap().removed, 0);
    age();
    assert_eq!(bed.store.collect(|_| false, an_hour_ago).unwrap().removed, 1);
}

/// Says that a content was last used then.
fn used_at(store: &Store, digest: &Digest, at: SystemTime) {
    let path = store.path(digest).unwrap().unwrap();
    fs::File::open(path).unwrap().set_times(fs::FileTimes::new().set_accessed(at)).unwrap();
}

#[test]
fn what_is_asked_for_is_not_collected_at_once() {
    let bed = Bed::new();
    let digest = bed.store.insert_bytes(b"old", Variant::Plain).unwrap().digest;
    let an_hour_ago = Timestamp::from_millis(SystemClock.timestamp().millis() - 3_600_000);
    let collected = || bed.store.collect(|_| false, an_hour_ago).unwrap().removed;
    let asks: [&dyn Fn() -> bool; 4] = [
        &|| bed.store.contains(&digest, Variant::Plain).unwrap(),
        &|| bed.store.size(&digest).unwrap().is_some(),
        &|| bed.store.path(&digest).unwrap().is_some(),
        &|| bed.store.get(&digest, Verify::No).is_ok(),
    ];
    for (at, ask) in asks.iter().enumerate() {
        used_at(&bed.store, &digest, UNIX_EPOCH);
        assert!(ask());
        assert_eq!(collected(), 0, "{at}");
    }
    // Nor what is taken over from another store, where it is old.
    let other = Bed::new();
    used_at(&bed.store, &digest, UNIX_EPOCH);
    other.store.insert_from(&bed.store, &digest, 99, &|| true).unwrap();
    assert_eq!(other.store.collect(|_| false, an_hour_ago).unwrap().removed, 0);
    used_at(&bed.store, &digest, UNIX_EPOCH);
    assert_eq!(collected(), 1);
}

#[test]
fn what_is_asked_for_all_the_time_is_written_down_once_a_minute() {
    let bed = Bed::new();
    let digest = bed.store.insert_bytes(b"popular", Variant::Plain).unwrap().digest;
    let path = bed.store.path(&digest).unwrap().unwrap();
    let used = || fs::metadata(&path).unwrap().accessed().unwrap();
    let today = Duration::from_millis(SystemClock.timestamp().millis());
    let before = |seconds| UNIX_EPOCH + today - Duration::from_secs(seconds);
    let (now, lately, earlier) = (before(0), before(30), before(90));
    used_at(&bed.store, &digest, lately);
    bed.store.get(&digest, Verify::No).unwrap();
    assert_eq!(used(), lately);
    used_at(&bed.store, &digest, earlier);
    bed.store.get(&digest, Verify::No).unwrap();
    // The times of files have steps.
    assert!(used() > now - Duration::from_secs(1));
}

#[test]
fn an_insertion_that_is_dropped_or_grows_too_large_leaves_nothing() {
    let bed = Bed::new();
    let mut dropped = bed.store.insertion(Variant::Plain, 100).unwrap();
    dropped.push(b"half").unwrap();
    assert_eq!(bed.store.usage().unwrap().temporary, 1);
    // It is being written, and not swept.
    assert_eq!(bed.store.sweep().unwrap().alive, 1);
    drop(dropped);
    bed.assert_tidy();
    let mut large = bed.store.insertion(Variant::Plain, 5).unwrap();
    large.push(b"12345").unwrap();
    assert_eq!(large.push(b"6").unwrap_err().kind(), StoreErrorKind::TooMuch);
    // What misses a piece is no content.
    assert_eq!(large.push(b"").unwrap_err().kind(), StoreErrorKind::Io);
    assert_eq!(large.finish().unwrap_err().kind(), StoreErrorKind::Io);
    bed.assert_tidy();
    assert_eq!(bed.store.usage().unwrap().contents, 0);
}

#[test]
fn many_at_once_make_one_content() {
    let bed = Bed::new();
    let bytes = vec![1; 200_000];
    let again = Store::open(bed.store.root()).unwrap();
    let new = thread::scope(|scope| {
        let bytes = &bytes;
        let insert =
            |store: Store| scope.spawn(move || store.insert_bytes(bytes, Variant::Plain).unwrap().is_new);
        let threads: Vec<_> =
            (0..8).map(|n| insert(if n % 2 == 0 { bed.store.clone() } else { again.clone() })).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|is_new| *is_new).count()
    });
    assert_eq!(new, 1);
    assert_eq!(bed.store.usage().unwrap().contents, 1);
    bed.assert_tidy();
}

#[test]
fn stores_of_two_tenants_share_nothing() {
    let (one, other) = (Bed::new(), Bed::new());
    let digest = one.store.insert_bytes(b"secret", Variant::Plain).unwrap().digest;
    assert!(!other.store.contains(&digest, Variant::Plain).unwrap());
    assert!(other.store.insert_bytes(b"secret", Variant::Plain).unwrap().is_new);
}

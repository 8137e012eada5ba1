//! Single contents: insert, get, link, copy, garbage collection; and contents of other stores.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use conjure_base::{Clock as _, Digest, SystemClock, Timestamp};
use conjure_store::{Durability, FileMode, LinkMethod, Store, StoreErrorKind, StoreOptions, Verify};

use crate::support::{StoreFixture, mode, open, set_mode};

/// A time before every use, and a time after every use.
const NEVER: Timestamp = Timestamp::from_millis(0);

fn one_hour_later() -> Timestamp {
    Timestamp::from_millis(SystemClock.timestamp().millis() + 3_600_000)
}

fn text(store: &Store, digest: &Digest) -> String {
    let mut text = String::new();
    store.get(digest, Verify::Yes).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn bytes_files_and_streams_are_read_as_they_were_inserted() {
    for durability in [Durability::Process, Durability::Content, Durability::Name] {
        let fixture = StoreFixture::with(StoreOptions { durability, ..StoreOptions::default() });
        let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).take(3_000_001).collect();
        for bytes in [&b""[..], b"hello", &large] {
            let digest = Digest::of_bytes(bytes);
            let file = fixture.file("file", bytes);
            let inserted = fixture.store.insert_file(&file, FileMode::Plain, u64::MAX).unwrap();
            assert_eq!((inserted.digest, inserted.size, inserted.is_new), (digest, bytes.len() as u64, true));
            assert!(!fixture.store.insert_bytes(bytes, FileMode::Plain).unwrap().is_new);
            assert!(!fixture.store.contains(&digest, FileMode::Executable).unwrap());
            let mut insertion = fixture.store.writer(FileMode::Executable, u64::MAX).unwrap();
            for piece in bytes.chunks(70_000) {
                insertion.write_all(piece).unwrap();
            }
            let inserted = insertion.finish().unwrap();
            assert_eq!((inserted.digest, inserted.size, inserted.is_new), (digest, bytes.len() as u64, true));
            let mut back = Vec::new();
            let mut content = fixture.store.get(&digest, Verify::Yes).unwrap();
            assert_eq!(content.size(), bytes.len() as u64);
            content.read_to_end(&mut back).unwrap();
            assert_eq!(back, bytes);
            assert_eq!(fixture.store.size(&digest).unwrap(), Some(bytes.len() as u64));
        }
        fixture.assert_tidy();
        assert_eq!(fixture.store.usage().unwrap().contents, 6);
    }
}

#[test]
fn each_mode_is_a_separate_read_only_file() {
    let fixture = StoreFixture::new();
    let plain = fixture.store.insert_bytes(b"#!/bin/sh\n", FileMode::Plain).unwrap();
    let executable = fixture.store.insert_bytes(b"#!/bin/sh\n", FileMode::Executable).unwrap();
    assert_eq!(plain.digest, executable.digest);
    let (path, directory) = fixture.dir("place");
    for (variant, name, expected) in
        [(FileMode::Plain, "plain", 0o444), (FileMode::Executable, "executable", 0o555)]
    {
        let linked = fixture.store.link_into(&plain.digest, variant, &directory, Path::new(name)).unwrap();
        assert_eq!(linked, LinkMethod::HardLink);
        assert_eq!(mode(&path.join(name)), expected);
        assert_eq!(fs::metadata(path.join(name)).unwrap().nlink(), 2);
    }
}

#[test]
fn a_taken_name_and_a_missing_content_are_refused() {
    let fixture = StoreFixture::new();
    let existing = fixture.store.insert_bytes(b"there", FileMode::Plain).unwrap().digest;
    let (path, directory) = fixture.dir("place");
    fs::write(path.join("taken"), "mine").unwrap();
    let link = |digest: &Digest, name: &str| {
        fixture
            .store
            .link_into(digest, FileMode::Plain, &directory, Path::new(name))
            .map_err(|error| error.kind())
    };
    assert_eq!(link(&existing, "taken"), Err(StoreErrorKind::Exists));
    assert_eq!(fs::read(path.join("taken")).unwrap(), b"mine");
    assert_eq!(link(&Digest::of_bytes(b"not there"), "name"), Err(StoreErrorKind::NotFound));
    for name in ["", ".", "..", "a/b", "/a", "a/"] {
        assert_eq!(link(&existing, name), Err(StoreErrorKind::Io), "{name}");
    }
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
}

#[test]
fn another_file_system_gets_copies() {
    let fixture = StoreFixture::new();
    let other_dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    assert_ne!(device(other_dir.path()), device(fixture.dir.path()), "the machine has one file system only");
    let bytes = vec![7; 300_000];
    let digest = fixture.store.insert_bytes(&bytes, FileMode::Executable).unwrap().digest;
    let directory = open(other_dir.path());
    let link = || fixture.store.link_into(&digest, FileMode::Executable, &directory, Path::new("copy"));
    assert_eq!(link().unwrap(), LinkMethod::Copy);
    let copy = other_dir.path().join("copy");
    assert_eq!((fs::read(&copy).unwrap(), mode(&copy)), (bytes, 0o555));
    assert_eq!(link().unwrap_err().kind(), StoreErrorKind::Exists);
    // The unwanted copy was removed.
    assert_eq!(fs::read_dir(other_dir.path()).unwrap().count(), 1);
}

/// A file has a maximum number of links: 65,000 on ext4.
#[test]
fn a_file_with_too_many_links_is_copied() {
    const MORE_THAN_ANY: u32 = 66_000;
    let fixture = StoreFixture::new();
    let digest = fixture.store.insert_bytes(b"popular", FileMode::Plain).unwrap().digest;
    let (path, directory) = fixture.dir("place");
    fixture.store.link_into(&digest, FileMode::Plain, &directory, Path::new("0")).unwrap();
    for number in 1..MORE_THAN_ANY {
        let (from, to) = (path.join("0"), path.join(number.to_string()));
        match fs::hard_link(from, to) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::TooManyLinks => break,
            Err(error) => panic!("{error}"),
        }
    }
    let links = fs::metadata(path.join("0")).unwrap().nlink();
    let linked = fixture.store.link_into(&digest, FileMode::Plain, &directory, Path::new("last")).unwrap();
    let expected = if links > u64::from(MORE_THAN_ANY) { LinkMethod::HardLink } else { LinkMethod::Copy };
    assert_eq!(linked, expected);
    assert_eq!(fs::read(path.join("last")).unwrap(), b"popular");
}

#[test]
fn corruption_is_detected_and_can_be_repaired() {
    let fixture = StoreFixture::new();
    let digest = fixture.store.insert_bytes(b"right", FileMode::Plain).unwrap().digest;
    let hex = digest.to_hex();
    let path = fixture.store.root().join("plain").join(&hex[..2]).join(&hex[2..]);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "wrong").unwrap();
    assert!(fixture.store.get(&digest, Verify::No).is_ok());
    let error = fixture.store.get(&digest, Verify::Yes).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
    assert!(error.to_string().contains(&digest.to_string()), "{error}");
    assert!(fixture.store.remove(&digest).unwrap());
    assert!(!fixture.store.remove(&digest).unwrap());
    assert_eq!(fixture.store.get(&digest, Verify::No).unwrap_err().kind(), StoreErrorKind::NotFound);
    assert!(fixture.store.insert_bytes(b"right", FileMode::Plain).unwrap().is_new);
    assert_eq!(text(&fixture.store, &digest), "right");
}

#[test]
fn unreferenced_and_unused_contents_are_collected() {
    let fixture = StoreFixture::new();
    let live = fixture.store.insert_bytes(b"live", FileMode::Plain).unwrap().digest;
    let dead = fixture.store.insert_bytes(b"dead!", FileMode::Plain).unwrap().digest;
    fixture.store.insert_bytes(b"dead!", FileMode::Executable).unwrap();
    let (path, directory) = fixture.dir("place");
    fixture.store.link_into(&dead, FileMode::Plain, &directory, Path::new("linked")).unwrap();
    assert_eq!(fixture.store.linked_digests().unwrap(), [dead].into());
    let retained = fixture.store.collect_garbage(|_| false, NEVER).unwrap();
    assert_eq!((retained.removed, retained.kept), (0, 3));
    let collected = fixture.store.collect_garbage(|digest| *digest == live, one_hour_later()).unwrap();
    assert_eq!((collected.removed, collected.bytes, collected.kept), (2, 10, 1));
    assert_eq!(fixture.store.digests().unwrap(), [(live, FileMode::Plain)]);
    // A linked file stays.
    assert_eq!(fs::read(path.join("linked")).unwrap(), b"dead!");
}

#[test]
fn inserting_an_existing_content_defers_its_collection() {
    let fixture = StoreFixture::new();
    let digest = fixture.store.insert_bytes(b"old", FileMode::Plain).unwrap().digest;
    let hex = digest.to_hex();
    let path = fixture.store.root().join("plain").join(&hex[..2]).join(&hex[2..]);
    let age = || {
        let long_ago = fs::FileTimes::new().set_accessed(UNIX_EPOCH);
        File::open(&path).unwrap().set_times(long_ago).unwrap();
    };
    let an_hour_ago = Timestamp::from_millis(SystemClock.timestamp().millis() - 3_600_000);
    let (_, directory) = fixture.dir("place");
    age();
    assert!(!fixture.store.insert_bytes(b"old", FileMode::Plain).unwrap().is_new);
    assert_eq!(fixture.store.collect_garbage(|_| false, an_hour_ago).unwrap().removed, 0);
    age();
    fixture.store.link_into(&digest, FileMode::Plain, &directory, Path::new("use")).unwrap();
    assert_eq!(fixture.store.collect_garbage(|_| false, an_hour_ago).unwrap().removed, 0);
    age();
    assert_eq!(fixture.store.collect_garbage(|_| false, an_hour_ago).unwrap().removed, 1);
}

/// Sets the last use of a content.
fn used_at(store: &Store, digest: &Digest, at: SystemTime) {
    let path = store.path(digest).unwrap().unwrap();
    File::open(path).unwrap().set_times(fs::FileTimes::new().set_accessed(at)).unwrap();
}

#[test]
fn a_lookup_defers_the_collection() {
    let fixture = StoreFixture::new();
    let digest = fixture.store.insert_bytes(b"old", FileMode::Plain).unwrap().digest;
    let an_hour_ago = Timestamp::from_millis(SystemClock.timestamp().millis() - 3_600_000);
    let collected = || fixture.store.collect_garbage(|_| false, an_hour_ago).unwrap().removed;
    let asks: [&dyn Fn() -> bool; 4] = [
        &|| fixture.store.contains(&digest, FileMode::Plain).unwrap(),
        &|| fixture.store.size(&digest).unwrap().is_some(),
        &|| fixture.store.path(&digest).unwrap().is_some(),
        &|| fixture.store.get(&digest, Verify::No).is_ok(),
    ];
    for (at, ask) in asks.iter().enumerate() {
        used_at(&fixture.store, &digest, UNIX_EPOCH);
        assert!(ask());
        assert_eq!(collected(), 0, "{at}");
    }
    // The same holds for an old content that is taken over from another store.
    let other = StoreFixture::new();
    used_at(&fixture.store, &digest, UNIX_EPOCH);
    other.store.insert_from_store(&fixture.store, &digest, 99, &|| true).unwrap();
    assert_eq!(other.store.collect_garbage(|_| false, an_hour_ago).unwrap().removed, 0);
    used_at(&fixture.store, &digest, UNIX_EPOCH);
    assert_eq!(collected(), 1);
}

#[test]
fn frequent_lookups_are_recorded_once_a_minute() {
    let fixture = StoreFixture::new();
    let digest = fixture.store.insert_bytes(b"popular", FileMode::Plain).unwrap().digest;
    let path = fixture.store.path(&digest).unwrap().unwrap();
    let used = || fs::metadata(&path).unwrap().accessed().unwrap();
    let today = Duration::from_millis(SystemClock.timestamp().millis());
    let before = |seconds| UNIX_EPOCH + today - Duration::from_secs(seconds);
    let (now, lately, earlier) = (before(0), before(30), before(90));
    used_at(&fixture.store, &digest, lately);
    fixture.store.get(&digest, Verify::No).unwrap();
    assert_eq!(used(), lately);
    used_at(&fixture.store, &digest, earlier);
    fixture.store.get(&digest, Verify::No).unwrap();
    // The times of files have steps.
    assert!(used() > now - Duration::from_secs(1));
}

#[test]
fn an_insertion_that_is_dropped_or_grows_too_large_leaves_nothing() {
    let fixture = StoreFixture::new();
    let mut dropped = fixture.store.writer(FileMode::Plain, 100).unwrap();
    dropped.push(b"half").unwrap();
    assert_eq!(fixture.store.usage().unwrap().temporary, 1);
    // It is still being written, so it is not swept.
    assert_eq!(fixture.store.sweep().unwrap().alive, 1);
    drop(dropped);
    fixture.assert_tidy();
    let mut large = fixture.store.writer(FileMode::Plain, 5).unwrap();
    large.push(b"12345").unwrap();
    assert_eq!(large.push(b"6").unwrap_err().kind(), StoreErrorKind::LimitExceeded);
    // A content with a missing chunk is not stored.
    assert_eq!(large.push(b"").unwrap_err().kind(), StoreErrorKind::Io);
    assert_eq!(large.finish().unwrap_err().kind(), StoreErrorKind::Io);
    fixture.assert_tidy();
    assert_eq!(fixture.store.usage().unwrap().contents, 0);
}

#[test]
fn concurrent_insertions_store_one_content() {
    let fixture = StoreFixture::new();
    let bytes = vec![1; 200_000];
    let reopened = Store::open(fixture.store.root()).unwrap();
    let new = thread::scope(|scope| {
        let bytes = &bytes;
        let insert =
            |store: Store| scope.spawn(move || store.insert_bytes(bytes, FileMode::Plain).unwrap().is_new);
        let threads: Vec<_> = (0..8)
            .map(|n| insert(if n % 2 == 0 { fixture.store.clone() } else { reopened.clone() }))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|is_new| *is_new).count()
    });
    assert_eq!(new, 1);
    assert_eq!(fixture.store.usage().unwrap().contents, 1);
    fixture.assert_tidy();
}

#[test]
fn stores_of_two_tenants_share_nothing() {
    let (one, other) = (StoreFixture::new(), StoreFixture::new());
    let digest = one.store.insert_bytes(b"secret", FileMode::Plain).unwrap().digest;
    assert!(!other.store.contains(&digest, FileMode::Plain).unwrap());
    assert!(other.store.insert_bytes(b"secret", FileMode::Plain).unwrap().is_new);
}

#[test]
fn a_cancelled_insertion_leaves_nothing() {
    let fixture = StoreFixture::new();
    let path = fixture.file("large", &vec![b'l'; 8 << 20]);
    // The number of calls: a third of the first reading, and once after the second has begun.
    for after in [0, 20, 70] {
        let remaining = Cell::new(after);
        let go_on = || {
            remaining.set(remaining.get() - 1);
            remaining.get() >= 0
        };
        let copied = fixture.store.insert_file_handle_cancellable(
            File::open(&path).unwrap().into(),
            &path,
            FileMode::Plain,
            u64::MAX,
            &go_on,
        );
        assert_eq!(copied.unwrap_err().kind(), StoreErrorKind::Cancelled, "after {after} pieces");
        assert_eq!(fixture.store.usage().unwrap().contents, 0);
        fixture.assert_tidy();
    }
}

#[test]
fn content_of_another_store_is_linked_or_copied_and_verified() {
    let (fixture, other) = (StoreFixture::new(), StoreFixture::new());
    let digest = other.store.insert_bytes(b"hello", FileMode::Plain).unwrap().digest;
    let script = other.store.insert_bytes(b"#!/bin/sh\n", FileMode::Executable).unwrap().digest;
    let take =
        |digest: &Digest, limit| fixture.store.insert_from_store(&other.store, digest, limit, &|| true);
    assert_eq!(take(&digest, 4).unwrap_err().kind(), StoreErrorKind::LimitExceeded);
    assert!(take(&digest, 5).unwrap().is_new);
    assert!(!take(&digest, 5).unwrap().is_new);
    assert_eq!(text(&fixture.store, &digest), "hello");
    assert!(take(&script, 99).unwrap().is_new);
    assert_eq!(mode(&fixture.store.root().join(format!("plain/{}", path_of(&script)))), 0o444);
    assert_eq!(take(&Digest::of_bytes(b"absent"), 99).unwrap_err().kind(), StoreErrorKind::NotFound);
    assert!(!other.store.insert_from_store(&other.store, &digest, 99, &|| true).unwrap().is_new);
    // A content that is only executable does not count as a plain one.
    assert!(other.store.insert_from_store(&other.store, &script, 99, &|| true).unwrap().is_new);
    assert!(other.store.contains(&script, FileMode::Plain).unwrap());
    assert!(!other.store.insert_from_store(&other.store, &script, 99, &|| true).unwrap().is_new);
    fixture.assert_tidy();
    other.assert_tidy();
}

fn path_of(digest: &Digest) -> String {
    let hex = digest.to_hex();
    format!("{}/{}", &hex[..2], &hex[2..])
}

#[test]
fn copies_and_paths_work_for_both_modes() {
    let fixture = StoreFixture::new();
    let plain = fixture.store.insert_bytes(b"plain", FileMode::Plain).unwrap();
    let executable = fixture.store.insert_bytes(b"run", FileMode::Executable).unwrap();
    let (dir, directory) = fixture.dir("place");
    for (name, inserted) in [("plain", plain), ("run", executable)] {
        fixture.store.copy_into(&inserted.digest, FileMode::Plain, &directory, Path::new(name)).unwrap();
        let existing =
            fixture.store.copy_into(&inserted.digest, FileMode::Plain, &directory, Path::new(name));
        assert_eq!(existing.unwrap_err().kind(), StoreErrorKind::Exists);
        let copy = dir.join(name);
        assert_eq!((fs::metadata(&copy).unwrap().nlink(), mode(&copy)), (1, 0o444));
        // A change of the copy does not change the store's file.
        set_mode(&copy, 0o644);
        fs::write(&copy, "changed").unwrap();
        let path = fixture.store.path(&inserted.digest).unwrap().unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), text(&fixture.store, &inserted.digest));
        assert_ne!(text(&fixture.store, &inserted.digest), "changed");
    }
    let absent = Digest::of_bytes(b"absent");
    assert_eq!(fixture.store.path(&absent).unwrap(), None);
    let error =
        fixture.store.copy_into(&absent, FileMode::Plain, &directory, Path::new("absent")).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotFound);
    assert!(fixture.store.copy_into(&plain.digest, FileMode::Plain, &directory, Path::new("../x")).is_err());
    assert!(
        !fs::read_dir(&dir)
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().starts_with(".conjure") })
    );
}

/// Earlier versions had a directory of links to files of other owners. It is removed.
#[test]
fn a_store_with_a_directory_of_an_earlier_version_opens() {
    let fixture = StoreFixture::new();
    let digest = Digest::of_bytes(b"linked");
    let linked = fixture.store.root().join("frozen").join(path_of(&digest));
    fs::create_dir_all(linked.parent().unwrap()).unwrap();
    fs::write(format!("{}.6.1.2.3", linked.display()), "linked").unwrap();
    let store = Store::open(fixture.store.root()).unwrap();
    assert!(!store.root().join("frozen").exists());
    assert_eq!(store.size(&digest).unwrap(), None);
    assert_eq!(store.usage().unwrap().contents, 0);
    assert_eq!(store.collect_garbage(|_| false, one_hour_later()).unwrap().removed, 0);
    assert!(store.insert_bytes(b"linked", FileMode::Plain).unwrap().is_new);
    assert_eq!(text(&store, &digest), "linked");
}

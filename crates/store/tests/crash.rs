//! The store when processes are killed, the disk is full, or the store cannot be written.
//!
//! Without arguments this program is the test. Each part starts the program again with arguments, as a child that is
//! killed or that gets a mount namespace of its own (`unshare`), which ends with it.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "this is a test without a harness")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use conjure_base::Digest;
use conjure_store::{
    Durability, FileMode, LinkMethod, Store, StoreErrorKind, StoreOptions, TreeOptions, Verify,
};
use rustix::fs::{CWD, Mode, OFlags};
use test_support::{KillOnDrop, in_mount_namespace, this_program};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["child-insert", root, seed] => insert_endlessly(Path::new(root), seed.parse().unwrap()),
        ["child-full", place] => full_disk(Path::new(place)),
        ["child-read-only", root] => read_only(Path::new(root)),
        ["child-foreign", root, place] => foreign(Path::new(root), Path::new(place)),
        _ => {
            for (name, test) in TESTS {
                test();
                println!("test {name} ... ok");
            }
        }
    }
}

const TESTS: [(&str, fn()); 4] = [
    (
        "killed_writers_leave_only_files_that_a_sweep_removes",
        killed_writers_leave_only_files_that_a_sweep_removes,
    ),
    ("a_full_disk_is_reported_and_leaves_nothing", a_full_disk_is_reported_and_leaves_nothing),
    ("a_store_that_cannot_be_written_can_be_read", a_store_that_cannot_be_written_can_be_read),
    ("a_store_of_another_user_gives_copies", a_store_of_another_user_gives_copies),
];

/// The content with this number: mostly small, sometimes more than a megabyte, so that each way of writing occurs.
fn content(number: u64) -> Vec<u8> {
    let length = if number % 23 == 5 { 1_100_000 } else { usize::try_from(number * 7919 % 30_011).unwrap() };
    let mut bytes = vec![u8::try_from(number % 251).unwrap(); length];
    bytes.extend(number.to_le_bytes());
    bytes
}

/// The child: inserts one content after another, and prints each digest.
fn insert_endlessly(root: &Path, seed: u64) {
    let options = StoreOptions { durability: Durability::Process, ..StoreOptions::default() };
    let store = Store::open_with(root, options).unwrap();
    for number in 0.. {
        // Half of them are contents of the other children, too.
        let number = if number % 2 == 0 { number } else { number + 1_000 * seed };
        let bytes = content(number);
        let digest = match number % 3 {
            0 => store.insert_bytes(&bytes, FileMode::Plain).unwrap().digest,
            1 => {
                let mut insertion = store.writer(FileMode::Executable, u64::MAX).unwrap();
                for piece in bytes.chunks(100_000) {
                    insertion.push(piece).unwrap();
                }
                insertion.finish().unwrap().digest
            }
            _ => {
                let file = root.with_extension(format!("source-{seed}"));
                fs::write(&file, &bytes).unwrap();
                store.insert_file(&file, FileMode::Plain, u64::MAX).unwrap().digest
            }
        };
        println!("{digest}");
    }
}

fn killed_writers_leave_only_files_that_a_sweep_removes() {
    const CHILDREN: u64 = 3;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let mut reported: Vec<Digest> = Vec::new();
    let mut was_left = 0;
    // Repeated until a child was killed while it wrote, which a busy machine makes rare.
    for round in 0..200 {
        if round >= 8 && was_left > 0 {
            break;
        }
        let mut children: Vec<(KillOnDrop, BufReader<_>)> = (0..CHILDREN)
            .map(|child| {
                let seed = (round * CHILDREN + child + 1).to_string();
                let mut child = this_program()
                    .args(["child-insert", root.to_str().unwrap(), &seed])
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                let stdout = BufReader::new(child.stdout.take().unwrap());
                (KillOnDrop(child), stdout)
            })
            .collect();
        // Each child is killed after a different number of contents.
        for (number, (child, stdout)) in children.iter_mut().enumerate() {
            let mut line = String::new();
            for _ in 0..=(round as usize % 8 + 5 * number) {
                line.clear();
                assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "the child failed");
                reported.push(line.trim().parse().unwrap());
            }
            child.0.kill().unwrap();
            child.0.wait().unwrap();
            // The lines that it printed before it died. The last line may be cut.
            let mut rest = String::new();
            stdout.read_to_string(&mut rest).unwrap();
            reported.extend(rest.lines().filter_map(|line| line.parse::<Digest>().ok()));
        }
        let store = Store::open(&root).unwrap();
        was_left += store.usage().unwrap().temporary;
        let swept = store.sweep().unwrap();
        assert_eq!((swept.alive, store.usage().unwrap().temporary), (0, 0));
        for (digest, _) in store.digests().unwrap() {
            store.get(&digest, Verify::Yes).unwrap();
        }
        for digest in &reported {
            assert!(store.size(digest).unwrap().is_some(), "{digest} was acknowledged and is not there");
        }
    }
    assert!(reported.len() > 100, "{} contents", reported.len());
    assert!(was_left > 0, "no child was killed while it wrote: the test shows nothing");
}

fn a_full_disk_is_reported_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    in_mount_namespace("mount -t tmpfs -o size=2m,mode=700 tmpfs \"$1\"", "child-full", dir.path());
}

fn full_disk(path: &Path) {
    let store = Store::open(&path.join("store")).unwrap();
    let small = store.insert_bytes(b"small", FileMode::Plain).unwrap().digest;
    let large = vec![5; 3 << 20];
    let full = |error: conjure_store::StoreError| {
        assert_eq!(error.kind(), StoreErrorKind::NoSpace, "{error}");
        assert!(error.to_string().contains("full"), "{error}");
    };
    let assert_tidy = || {
        let usage = store.usage().unwrap();
        assert_eq!((usage.contents, usage.temporary), (1, 0));
    };
    full(store.insert_bytes(&large, FileMode::Plain).unwrap_err());
    assert_tidy();
    let source = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::create_dir(source.path().join("tree")).unwrap();
    let file = source.path().join("tree/file");
    fs::write(&file, &large).unwrap();
    full(store.insert_file(&file, FileMode::Plain, u64::MAX).unwrap_err());
    assert_tidy();
    full(store.insert_tree(&source.path().join("tree"), &TreeOptions::default()).unwrap_err());
    assert_tidy();
    let mut insertion = store.writer(FileMode::Plain, u64::MAX).unwrap();
    full(insertion.push(&large).unwrap_err());
    drop(insertion);
    assert_tidy();
    // Many small files fill the disk, too, and existing contents stay.
    let error = (0_u32..).find_map(|number| {
        let bytes = [number.to_le_bytes().as_slice(), &[0; 10_000]].concat();
        store.insert_bytes(&bytes, FileMode::Plain).err()
    });
    full(error.unwrap());
    assert_eq!(store.usage().unwrap().temporary, 0);
    store.get(&small, Verify::Yes).unwrap();
    // After a removal there is space again.
    let later = conjure_base::Timestamp::from_millis(u64::MAX);
    store.collect_garbage(|digest| *digest == small, later).unwrap();
    store.insert_bytes(&[1; 1 << 20], FileMode::Plain).unwrap();
}

fn a_store_that_cannot_be_written_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    Store::open(&root).unwrap().insert_bytes(b"there", FileMode::Plain).unwrap();
    let prepare = "mount --bind \"$1\" \"$1\"; mount -o remount,bind,ro \"$1\"";
    in_mount_namespace(prepare, "child-read-only", &root);
}

fn read_only(root: &Path) {
    let store = Store::open(root).unwrap();
    let existing = Digest::of_bytes(b"there");
    assert!(!store.insert_bytes(b"there", FileMode::Plain).unwrap().is_new);
    store.get(&existing, Verify::Yes).unwrap();
    let refused = store.insert_bytes(b"not there", FileMode::Plain).unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::ReadOnly);
    assert!(refused.to_string().contains("read-only"), "{refused}");
    let later = conjure_base::Timestamp::from_millis(u64::MAX);
    assert_eq!(store.collect_garbage(|_| false, later).unwrap_err().kind(), StoreErrorKind::ReadOnly);
    assert_eq!(store.sweep().unwrap().removed, 0);
    // A mount of its own counts as another file system for links.
    let other_dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = rustix::fs::openat(CWD, other_dir.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
    let linked = store.link_into(&existing, FileMode::Plain, dir.unwrap(), Path::new("copy")).unwrap();
    assert_eq!(linked, LinkMethod::Copy);
}

/// `fs.protected_hardlinks` lets a user link only files of his own; a store may belong to the system.
fn a_store_of_another_user_gives_copies() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        println!("(not shown: only root can be two users)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let root = dir.path().join("store");
    Store::open(&root).unwrap().insert_bytes(b"there", FileMode::Plain).unwrap();
    for shared in ["", "plain", "executable", "temporary"] {
        fs::set_permissions(root.join(shared), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let shard = Digest::of_bytes(b"there").to_hex();
    fs::set_permissions(root.join("plain").join(&shard[..2]), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(root.join("version"), fs::Permissions::from_mode(0o644)).unwrap();
    let path = dir.path().join("place");
    fs::create_dir(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
    // This program may be in a directory that the user cannot enter.
    let program = dir.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the test needs a process of another user")]
    let status = Command::new(&program)
        .args(["child-foreign", root.to_str().unwrap(), path.to_str().unwrap()])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

fn foreign(root: &Path, place: &Path) {
    let store = Store::open(root).unwrap();
    let existing = Digest::of_bytes(b"there");
    let dir = rustix::fs::openat(CWD, place, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let linked = store.link_into(&existing, FileMode::Plain, dir, Path::new("name")).unwrap();
    let is_protected = fs::read_to_string("/proc/sys/fs/protected_hardlinks").unwrap().trim() == "1";
    assert_eq!(linked, if is_protected { LinkMethod::Copy } else { LinkMethod::HardLink });
    assert_eq!(fs::read(place.join("name")).unwrap(), b"there");
    let links = if is_protected { 1 } else { 2 };
    assert_eq!(fs::metadata(place.join("name")).unwrap().nlink(), links);
    assert_eq!(
        store.insert_bytes(b"new", FileMode::Plain).unwrap_err().kind(),
        StoreErrorKind::PermissionDenied
    );
}

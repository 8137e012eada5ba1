use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use super::*;

fn open(path: &Path) -> OwnedFd {
    openat(rustix::fs::CWD, path, DIR, Mode::empty()).unwrap()
}

fn copy(from: &Path, to: &Path) -> Result<(), CopyError> {
    copy_tree(open(from), open(to), CopyBounds::default(), &CancellationToken::new())
}

/// Two empty directories.
fn dirs() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&to).unwrap();
    (dir, from, to)
}

#[test]
fn a_directory_is_copied_with_what_programs_look_at() {
    let (_dir, from, to) = dirs();
    fs::create_dir_all(from.join("a/b")).unwrap();
    fs::write(from.join("a/b/run.sh"), "#!/bin/sh\necho hello\n").unwrap();
    fs::set_permissions(from.join("a/b/run.sh"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::write(from.join("empty"), "").unwrap();
    fs::write(from.join("first"), "two names").unwrap();
    fs::hard_link(from.join("first"), from.join("a/second")).unwrap();
    fs::write(from.join("a/closed"), "x").unwrap();
    fs::set_permissions(from.join("a"), fs::Permissions::from_mode(0o555)).unwrap();
    copy(&from, &to).unwrap();
    assert_eq!(fs::read_to_string(to.join("a/b/run.sh")).unwrap(), "#!/bin/sh\necho hello\n");
    let stat = |path: &str| fs::metadata(to.join(path)).unwrap();
    assert_eq!(stat("a/b/run.sh").mode() & 0o7777, 0o755, "without the bit that changes the user");
    assert_eq!(stat("a").mode() & 0o777, 0o555);
    assert_eq!(stat("empty").len(), 0);
    assert_eq!((stat("first").ino(), stat("first").nlink()), (stat("a/second").ino(), 2));
    for path in ["a/b/run.sh", "a/b", "a", "first"] {
        let original = fs::metadata(from.join(path)).unwrap();
        assert_eq!((stat(path).mtime(), stat(path).mtime_nsec()), (original.mtime(), original.mtime_nsec()));
    }
    // The copy is a copy.
    fs::write(to.join("first"), "changed").unwrap();
    assert_eq!(fs::read_to_string(from.join("first")).unwrap(), "two names");
    for dir in [&from, &to] {
        fs::set_permissions(dir.join("a"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn links_stay_links_and_lead_nobody_anywhere() {
    let (dir, from, to) = dirs();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "s3cret").unwrap();
    symlink(&outside, from.join("directory")).unwrap();
    symlink("../outside/secret", from.join("file")).unwrap();
    symlink("nowhere", from.join("dangling")).unwrap();
    let _socket = UnixListener::bind(from.join("socket")).unwrap();
    let pipe = from.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    copy(&from, &to).unwrap();
    for (name, target) in
        [("directory", outside.to_str().unwrap()), ("file", "../outside/secret"), ("dangling", "nowhere")]
    {
        assert_eq!(fs::read_link(to.join(name)).unwrap(), Path::new(target));
    }
    assert_eq!(fs::read_dir(&to).unwrap().count(), 3, "neither sockets nor pipes");
}

#[test]
fn holes_stay_holes() {
    let (_dir, from, to) = dirs();
    let sparse = File::create(from.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    sparse.write_all_at(b"in the middle", 1 << 39).unwrap();
    let ends = File::create(from.join("ends")).unwrap();
    ends.write_all_at(b"begin", 0).unwrap();
    ends.set_len(10 << 20).unwrap();
    copy(&from, &to).unwrap();
    let copied = fs::metadata(to.join("sparse")).unwrap();
    assert_eq!(copied.len(), 1 << 40);
    assert!(copied.blocks() * 512 < 1 << 20, "{} blocks", copied.blocks());
    let mut read = [0; 13];
    File::open(to.join("sparse")).unwrap().read_exact_at(&mut read, 1 << 39).unwrap();
    assert_eq!(&read, b"in the middle");
    let ends = fs::read(to.join("ends")).unwrap();
    assert_eq!(
        (ends.len(), &ends[..5], ends[5..].iter().all(|byte| *byte == 0)),
        (10 << 20, &b"begin"[..], true)
    );
}

#[test]
fn a_directory_beyond_the_bounds_is_refused_with_its_place() {
    let (_dir, from, to) = dirs();
    fs::create_dir_all(from.join("a/b/c")).unwrap();
    let bounded = |entries, depth| {
        let (_dir, _, to) = dirs();
        let bounds = CopyBounds { entries, depth };
        copy_tree(open(&from), open(&to), bounds, &CancellationToken::new())
    };
    assert!(bounded(3, 3).is_ok());
    let error = bounded(2, 3).unwrap_err();
    assert_eq!(error.reason, "it has more than 2 files, directories and links");
    let error = bounded(3, 2).unwrap_err();
    assert_eq!((error.path, error.reason.as_str()), ("a/b/c".into(), "its directories are more than 2 deep"));

    let cancel = CancellationToken::new();
    cancel.cancel();
    let error = copy_tree(open(&from), open(&to), CopyBounds::default(), &cancel).unwrap_err();
    assert_eq!(error.reason, "the copy was interrupted");
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_it() {
    let (_dir, from, to) = dirs();
    fs::create_dir(from.join("a")).unwrap();
    fs::write(from.join("a/closed"), "x").unwrap();
    fs::set_permissions(from.join("a/closed"), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(from.join("a/closed")).is_ok() {
        // Root may read everything.
        return copy(&from, &to).unwrap();
    }
    let error = copy(&from, &to).unwrap_err();
    assert_eq!(error.path, Path::new("a/closed"));
    assert!(error.reason.contains("denied"), "{}", error.reason);
}

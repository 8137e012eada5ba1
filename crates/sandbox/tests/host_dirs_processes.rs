//! Places whose host is killed, and directories in which something is mounted.
//!
//! Run without arguments it is the test; each part starts this program again with arguments, as the host that is killed, or
//! in a mount namespace of its own (`unshare`, which ends with it).

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "this is a test without a harness")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use conjure_sandbox::{SandboxDirs, SandboxErrorKind, dir_id, remove_tree};
use test_support::{KillOnDrop, in_mount_namespace, this_program};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["child-host", data] => live(Path::new(data)),
        ["child-mounted", top] => mounted(Path::new(top)),
        _ => {
            for (name, test) in TESTS {
                test();
                println!("test {name} ... ok");
            }
        }
    }
}

const TESTS: [(&str, fn()); 2] = [
    ("the_content_dirs_of_a_killed_host_are_swept", the_content_dirs_of_a_killed_host_are_swept),
    ("mounts_are_not_entered", mounts_are_not_entered),
];

/// The child has a content directory, and runs until it is killed.
fn live(data: &Path) {
    let dir = SandboxDirs::open(data).unwrap().create().unwrap();
    fs::write(dir.output().join("output-1.log"), "long").unwrap();
    println!("{}", dir.path().display());
    loop {
        std::thread::park();
    }
}

fn the_content_dirs_of_a_killed_host_are_swept() {
    let data = tempfile::tempdir().unwrap();
    let mut host = this_program()
        .args(["child-host", data.path().to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .map(KillOnDrop)
        .unwrap();
    let mut path = String::new();
    BufReader::new(host.0.stdout.take().unwrap()).read_line(&mut path).unwrap();
    let path = Path::new(path.trim());
    let dirs = SandboxDirs::open(data.path()).unwrap();
    let swept = dirs.sweep().unwrap();
    assert_eq!((swept.removed, swept.alive), (0, 1));
    assert!(path.join("output/output-1.log").exists());
    drop(host);
    let swept = dirs.sweep().unwrap();
    assert_eq!((swept.removed, swept.alive), (1, 0));
    assert!(!path.exists());
}

fn mounts_are_not_entered() {
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path().join("top");
    for mount in ["direct", "deep/er/bound"] {
        fs::create_dir_all(top.join(mount)).unwrap();
    }
    fs::write(top.join("deep/file"), "goes").unwrap();
    let source = directory.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "stays").unwrap();
    let prepare = "mount -t tmpfs tmpfs \"$1/direct\"; echo stays > \"$1/direct/file\"; \
                   mount --bind \"$1/../source\" \"$1/deep/er/bound\"";
    in_mount_namespace(prepare, "child-mounted", &top);
    // The mounts end with their namespace, so the directory can be removed.
    assert!(directory.path().join("source/file").exists());
    remove_tree(&top, dir_id(&top).unwrap()).unwrap();
}

fn mounted(top: &Path) {
    let error = remove_tree(top, dir_id(top).unwrap()).unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Io);
    assert!(error.to_string().contains("mounted"), "{error}");
    assert_eq!(fs::read(top.join("direct/file")).unwrap(), b"stays\n");
    assert!(!top.join("deep/file").exists());
}

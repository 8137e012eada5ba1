//! Content that the guest installs: completely or not at all, and never changed by commands.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use conjure_guest::protocol::{
    ArchiveHeader, ArchiveKind, CommandRules, ErrorCode, FileMode, FileRule, FileRules, FrameKind,
    GuestError, Hello, Reply, Request, RuleStatus, SpillAccess,
};

use crate::client::Guest;

/// A guest with the content directory `skills`.
fn start(rules: CommandRules) -> (Guest, RuleStatus) {
    let mut guest = Guest::start_without_handshake();
    std::fs::create_dir_all(guest.path("content/skills")).expect("made");
    let content_root = Some(guest.path("content").to_str().expect("UTF-8").to_owned());
    let hello = Hello { content_root, rules, ..guest.hello() };
    let in_force = guest.send_hello(&hello).rules.files;
    (guest, in_force)
}

fn plain() -> Guest {
    start(CommandRules::default()).0
}

fn request(name: &str, kind: ArchiveKind) -> Request {
    Request::Install { content_dir: "skills".to_owned(), name: name.to_owned(), kind }
}

fn archive(files: &[(&str, &[u8], FileMode)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (path, content, mode) in files {
        let (path, size) = (path.as_bytes().to_vec(), content.len() as u64);
        bytes.extend(ArchiveHeader::File { path, size, mode: *mode }.encode());
        bytes.extend_from_slice(content);
    }
    bytes.extend(ArchiveHeader::End.encode());
    bytes
}

fn install(guest: &mut Guest, name: &str, kind: ArchiveKind, content: &[u8]) -> Result<Reply, GuestError> {
    let channel = guest.open(request(name, kind), 0, None);
    guest.feed(channel, content);
    guest.finish(channel).result
}

/// What lies in a directory, with nothing beside it that was begun.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn an_archive_becomes_a_directory_or_a_file() {
    let mut guest = plain();
    let big: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let files: [(&str, &[u8], _); 4] = [
        ("SKILL.md", b"# One", FileMode::Plain),
        ("assets/big", &big, FileMode::Plain),
        ("assets/empty", b"", FileMode::Plain),
        ("scripts/deep/run.sh", b"#!/bin/sh\n", FileMode::Executable),
    ];
    let bytes = files.iter().map(|(_, content, _)| content.len() as u64).sum();
    let installed = install(&mut guest, "one", ArchiveKind::Dir, &archive(&files));
    assert_eq!(installed, Ok(Reply::Install { files: 4, bytes }));
    let content_dir = guest.path("content/skills");
    for (path, content, mode) in files {
        let file = content_dir.join("one").join(path);
        assert!(std::fs::read(&file).expect("it is there") == content, "{path}");
        let expected = if mode == FileMode::Executable { 0o555 } else { 0o444 };
        assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o7777, expected);
    }
    let one = archive(&[("two.csv", b"1,2\n", FileMode::Plain)]);
    let installed = install(&mut guest, "two.csv", ArchiveKind::File, &one);
    assert_eq!(installed, Ok(Reply::Install { files: 1, bytes: 4 }));
    assert_eq!(install(&mut guest, "none", ArchiveKind::Dir, &archive(&[])).map(drop), Ok(()));
    // What is there stays.
    for name in ["one", "two.csv"] {
        let again = archive(&[(name, b"x", FileMode::Plain)]);
        for kind in [ArchiveKind::File, ArchiveKind::Dir] {
            let error = install(&mut guest, name, kind, &again).expect_err("it is taken");
            assert_eq!(error.code, ErrorCode::Exists);
        }
    }
    assert_eq!(names(&content_dir), ["none", "one", "two.csv"]);
    assert_eq!(names(&guest.path("content")), ["skills"]);
}

#[test]
fn a_truncated_or_malformed_archive_leaves_nothing() {
    let mut guest = plain();
    let whole = archive(&[("a/b", &[7; 100_000], FileMode::Plain), ("c", b"x", FileMode::Plain)]);
    let without_end = &whole[..whole.len() - 1];
    let cases: [(&str, ArchiveKind, &[u8], ErrorCode); 8] = [
        ("cut", ArchiveKind::Dir, &whole[..50_000], ErrorCode::Cancelled),
        ("cut", ArchiveKind::Dir, without_end, ErrorCode::Cancelled),
        ("cut", ArchiveKind::Dir, b"", ErrorCode::Cancelled),
        ("more", ArchiveKind::Dir, &[whole.as_slice(), b"x"].concat(), ErrorCode::BadRequest),
        ("nonsense", ArchiveKind::Dir, &[b'?'; 13], ErrorCode::BadRequest),
        ("two", ArchiveKind::File, &whole, ErrorCode::BadRequest),
        ("a/b", ArchiveKind::Dir, &whole, ErrorCode::BadRequest),
        ("..", ArchiveKind::Dir, &whole, ErrorCode::BadRequest),
    ];
    for (name, kind, content, code) in cases {
        let error = install(&mut guest, name, kind, content).expect_err("refused");
        assert_eq!(error.code, code, "{name}: {error}");
    }
    for path in ["../out", "/abs", "a/../../out", "."] {
        let hostile = archive(&[(path, b"x", FileMode::Plain)]);
        let error = install(&mut guest, "hostile", ArchiveKind::Dir, &hostile).expect_err("refused");
        assert_eq!(error.code, ErrorCode::BadRequest, "{path}");
    }
    let absent =
        Request::Install { content_dir: "none".to_owned(), name: "x".to_owned(), kind: ArchiveKind::File };
    assert_eq!(guest.call(absent).result.expect_err("no such directory").code, ErrorCode::NotFound);
    assert_eq!(names(&guest.path("content")), ["skills"]);
    assert_eq!(names(&guest.path("content/skills")), Vec::<String>::new());
}

#[test]
fn a_cancelled_install_leaves_nothing() {
    let mut guest = plain();
    let channel = guest.open(request("late", ArchiveKind::Dir), 0, None);
    let head = ArchiveHeader::File { path: b"file".to_vec(), size: 1 << 30, mode: FileMode::Plain }.encode();
    guest.next_of(channel);
    guest.send_data(channel, &head);
    guest.send_data(channel, &[1; 1000]);
    guest.send(FrameKind::Cancel, channel, &[]);
    assert_eq!(guest.finish(channel).result.expect_err("called off").code, ErrorCode::Cancelled);
    assert_eq!(names(&guest.path("content")), ["skills"]);
}

#[test]
fn removed_content_disappears_at_once_and_open_files_remain() {
    let mut guest = plain();
    let files: [(&str, &[u8], _); 2] =
        [("SKILL.md", b"# One", FileMode::Plain), ("deep/er/run.sh", b"x", FileMode::Executable)];
    assert!(install(&mut guest, "one", ArchiveKind::Dir, &archive(&files)).is_ok());
    let two = archive(&[("two.csv", b"1,2", FileMode::Plain)]);
    assert!(install(&mut guest, "two.csv", ArchiveKind::File, &two).is_ok());
    let content_dir = guest.path("content/skills");
    let mut open = std::fs::File::open(content_dir.join("two.csv")).expect("it is there");
    let remove = |guest: &mut Guest, name: &str| {
        guest.call(Request::Remove { content_dir: "skills".to_owned(), name: name.to_owned() }).result
    };
    for name in ["one", "two.csv"] {
        assert_eq!(remove(&mut guest, name), Ok(Reply::Remove { existed: true }), "{name}");
        assert_eq!(remove(&mut guest, name), Ok(Reply::Remove { existed: false }), "{name}");
    }
    assert_eq!(names(&content_dir), Vec::<String>::new());
    assert_eq!(names(&guest.path("content")), ["skills"]);
    let mut kept = String::new();
    std::io::Read::read_to_string(&mut open, &mut kept).expect("it is still open");
    assert_eq!(kept, "1,2");
    // The name is free again.
    let two = archive(&[("two.csv", b"other", FileMode::Plain)]);
    assert!(install(&mut guest, "two.csv", ArchiveKind::File, &two).is_ok());
    for name in ["", "..", "a/b", "../skills"] {
        assert_eq!(remove(&mut guest, name).expect_err(name).code, ErrorCode::BadRequest, "{name}");
    }
    let absent = Request::Remove { content_dir: "none".to_owned(), name: "x".to_owned() };
    assert_eq!(guest.call(absent).result.expect_err("no such directory").code, ErrorCode::NotFound);
    assert_eq!(names(&content_dir), ["two.csv"]);
}

#[test]
fn commands_can_only_read_content() {
    let files =
        FileRules { read: vec!["/".to_owned()], output: SpillAccess::GuestOnly, ..FileRules::default() };
    let (mut guest, in_force) =
        start(CommandRules { files: FileRule::Only(files), ..CommandRules::default() });
    assert_eq!(in_force, RuleStatus::Enforced);
    let one = archive(&[("file", b"text", FileMode::Plain)]);
    assert!(install(&mut guest, "one", ArchiveKind::Dir, &one).is_ok());
    let content_dir = guest.path("content/skills").display().to_string();
    assert_eq!(guest.bash(&format!("cat {content_dir}/one/file")).text(), "text");
    let changes =
        ["echo x > one/new", "rm one/file", "mv one two", "mkdir two", "ln -s x two", "cp one/file x"];
    for change in changes {
        let outcome = guest.bash(&format!("cd {content_dir} && {{ {change}; }} 2>&1"));
        assert!(outcome.text().contains("Permission denied"), "{change}: {outcome:?}");
    }
    assert_eq!(names(&guest.path("content/skills")), ["one"]);
}

#[test]
fn a_guest_without_content_root_accepts_no_content() {
    let mut guest = Guest::start();
    let error = guest.call(request("one", ArchiveKind::File)).result.expect_err("refused");
    assert_eq!(error.code, ErrorCode::BadRequest);
    let remove = Request::Remove { content_dir: "skills".to_owned(), name: "one".to_owned() };
    assert_eq!(guest.call(remove).result.expect_err("refused").code, ErrorCode::BadRequest);
}

//! Shelves that the guest fills: whole or not at all, and by nobody else.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use conjure_guest::protocol::{
    CommandRules, ErrorCode, FileRule, FileRules, FrameKind, GuestError, Hello, InForce, OutputRule,
    ParcelHead, ParcelKind, ParcelMode, Reply, Request,
};

use crate::client::Guest;

/// A guest that fills the shelf `skills`.
fn start(rules: CommandRules) -> (Guest, InForce) {
    let mut guest = Guest::start_silent();
    std::fs::create_dir_all(guest.path("shelves/skills")).expect("made");
    let shelves = Some(guest.path("shelves").to_str().expect("UTF-8").to_owned());
    let hello = Hello { shelves, rules, ..guest.hello() };
    let in_force = guest.say_hello(&hello).rules.files;
    (guest, in_force)
}

fn plain() -> Guest {
    start(CommandRules::default()).0
}

fn request(name: &str, kind: ParcelKind) -> Request {
    Request::Provide { shelf: "skills".to_owned(), name: name.to_owned(), kind }
}

fn parcel(files: &[(&str, &[u8], ParcelMode)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (path, content, mode) in files {
        let (path, size) = (path.as_bytes().to_vec(), content.len() as u64);
        bytes.extend(ParcelHead::File { path, size, mode: *mode }.encode());
        bytes.extend_from_slice(content);
    }
    bytes.extend(ParcelHead::End.encode());
    bytes
}

fn provide(guest: &mut Guest, name: &str, kind: ParcelKind, parcel: &[u8]) -> Result<Reply, GuestError> {
    let channel = guest.open(request(name, kind), 0, None);
    guest.feed(channel, parcel);
    guest.finish(channel).result
}

/// What lies in a folder, with nothing beside it that was begun.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_parcel_becomes_a_folder_or_a_file() {
    let mut guest = plain();
    let big: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let files: [(&str, &[u8], _); 4] = [
        ("SKILL.md", b"# One", ParcelMode::Plain),
        ("assets/big", &big, ParcelMode::Plain),
        ("assets/empty", b"", ParcelMode::Plain),
        ("scripts/deep/run.sh", b"#!/bin/sh\n", ParcelMode::Executable),
    ];
    let bytes = files.iter().map(|(_, content, _)| content.len() as u64).sum();
    let provided = provide(&mut guest, "one", ParcelKind::Folder, &parcel(&files));
    assert_eq!(provided, Ok(Reply::Provide { files: 4, bytes }));
    let shelf = guest.path("shelves/skills");
    for (path, content, mode) in files {
        let file = shelf.join("one").join(path);
        assert!(std::fs::read(&file).expect("it is there") == content, "{path}");
        let expected = if mode == ParcelMode::Executable { 0o555 } else { 0o444 };
        assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o7777, expected);
    }
    let one = parcel(&[("two.csv", b"1,2\n", ParcelMode::Plain)]);
    let provided = provide(&mut guest, "two.csv", ParcelKind::File, &one);
    assert_eq!(provided, Ok(Reply::Provide { files: 1, bytes: 4 }));
    assert_eq!(provide(&mut guest, "none", ParcelKind::Folder, &parcel(&[])).map(drop), Ok(()));
    // What is there stays.
    for name in ["one", "two.csv"] {
        let again = parcel(&[(name, b"x", ParcelMode::Plain)]);
        for kind in [ParcelKind::File, ParcelKind::Folder] {
            let error = provide(&mut guest, name, kind, &again).expect_err("it is taken");
            assert_eq!(error.code, ErrorCode::Exists);
        }
    }
    assert_eq!(names(&shelf), ["none", "one", "two.csv"]);
    assert_eq!(names(&guest.path("shelves")), ["skills"]);
}

#[test]
fn what_is_cut_or_makes_no_sense_leaves_nothing() {
    let mut guest = plain();
    let whole = parcel(&[("a/b", &[7; 100_000], ParcelMode::Plain), ("c", b"x", ParcelMode::Plain)]);
    let without_end = &whole[..whole.len() - 1];
    let cases: [(&str, ParcelKind, &[u8], ErrorCode); 8] = [
        ("cut", ParcelKind::Folder, &whole[..50_000], ErrorCode::Cancelled),
        ("cut", ParcelKind::Folder, without_end, ErrorCode::Cancelled),
        ("cut", ParcelKind::Folder, b"", ErrorCode::Cancelled),
        ("more", ParcelKind::Folder, &[whole.as_slice(), b"x"].concat(), ErrorCode::BadRequest),
        ("nonsense", ParcelKind::Folder, &[b'?'; 13], ErrorCode::BadRequest),
        ("two", ParcelKind::File, &whole, ErrorCode::BadRequest),
        ("a/b", ParcelKind::Folder, &whole, ErrorCode::BadRequest),
        ("..", ParcelKind::Folder, &whole, ErrorCode::BadRequest),
    ];
    for (name, kind, parcel, code) in cases {
        let error = provide(&mut guest, name, kind, parcel).expect_err("refused");
        assert_eq!(error.code, code, "{name}: {error}");
    }
    for path in ["../out", "/abs", "a/../../out", "."] {
        let hostile = parcel(&[(path, b"x", ParcelMode::Plain)]);
        let error = provide(&mut guest, "hostile", ParcelKind::Folder, &hostile).expect_err("refused");
        assert_eq!(error.code, ErrorCode::BadRequest, "{path}");
    }
    let absent = Request::Provide { shelf: "none".to_owned(), name: "x".to_owned(), kind: ParcelKind::File };
    assert_eq!(guest.call(absent).result.expect_err("no such shelf").code, ErrorCode::NotFound);
    assert_eq!(names(&guest.path("shelves")), ["skills"]);
    assert_eq!(names(&guest.path("shelves/skills")), Vec::<String>::new());
}

#[test]
fn a_parcel_that_is_called_off_leaves_nothing() {
    let mut guest = plain();
    let channel = guest.open(request("late", ParcelKind::Folder), 0, None);
    let head = ParcelHead::File { path: b"file".to_vec(), size: 1 << 30, mode: ParcelMode::Plain }.encode();
    guest.next_of(channel);
    guest.send_data(channel, &head);
    guest.send_data(channel, &[1; 1000]);
    guest.send(FrameKind::Cancel, channel, &[]);
    assert_eq!(guest.finish(channel).result.expect_err("called off").code, ErrorCode::Cancelled);
    assert_eq!(names(&guest.path("shelves")), ["skills"]);
}

#[test]
fn what_is_withdrawn_is_gone_at_once_and_stays_with_who_has_it_open() {
    let mut guest = plain();
    let files: [(&str, &[u8], _); 2] =
        [("SKILL.md", b"# One", ParcelMode::Plain), ("deep/er/run.sh", b"x", ParcelMode::Executable)];
    assert!(provide(&mut guest, "one", ParcelKind::Folder, &parcel(&files)).is_ok());
    let two = parcel(&[("two.csv", b"1,2", ParcelMode::Plain)]);
    assert!(provide(&mut guest, "two.csv", ParcelKind::File, &two).is_ok());
    let shelf = guest.path("shelves/skills");
    let mut open = std::fs::File::open(shelf.join("two.csv")).expect("it is there");
    let withdraw = |guest: &mut Guest, name: &str| {
        guest.call(Request::Withdraw { shelf: "skills".to_owned(), name: name.to_owned() }).result
    };
    for name in ["one", "two.csv"] {
        assert_eq!(withdraw(&mut guest, name), Ok(Reply::Withdraw { was_there: true }), "{name}");
        assert_eq!(withdraw(&mut guest, name), Ok(Reply::Withdraw { was_there: false }), "{name}");
    }
    assert_eq!(names(&shelf), Vec::<String>::new());
    assert_eq!(names(&guest.path("shelves")), ["skills"]);
    let mut kept = String::new();
    std::io::Read::read_to_string(&mut open, &mut kept).expect("it is still open");
    assert_eq!(kept, "1,2");
    // The name is free again.
    let two = parcel(&[("two.csv", b"other", ParcelMode::Plain)]);
    assert!(provide(&mut guest, "two.csv", ParcelKind::File, &two).is_ok());
    for name in ["", "..", "a/b", "../skills"] {
        assert_eq!(withdraw(&mut guest, name).expect_err(name).code, ErrorCode::BadRequest, "{name}");
    }
    let absent = Request::Withdraw { shelf: "none".to_owned(), name: "x".to_owned() };
    assert_eq!(guest.call(absent).result.expect_err("no such shelf").code, ErrorCode::NotFound);
    assert_eq!(names(&shelf), ["two.csv"]);
}

#[test]
fn commands_read_shelves_and_do_not_write_them() {
    let files =
        FileRules { read: vec!["/".to_owned()], output: OutputRule::GuestAlone, ..FileRules::default() };
    let (mut guest, in_force) =
        start(CommandRules { files: FileRule::Only(files), ..CommandRules::default() });
    assert_eq!(in_force, InForce::Yes);
    let one = parcel(&[("file", b"text", ParcelMode::Plain)]);
    assert!(provide(&mut guest, "one", ParcelKind::Folder, &one).is_ok());
    let shelf = guest.path("shelves/skills").display().to_string();
    assert_eq!(guest.bash(&format!("cat {shelf}/one/file")).text(), "text");
    let changes =
        ["echo x > one/new", "rm one/file", "mv one two", "mkdir two", "ln -s x two", "cp one/file x"];
    for change in changes {
        let outcome = guest.bash(&format!("cd {shelf} && {{ {change}; }} 2>&1"));
        assert!(outcome.text().contains("Permission denied"), "{change}: {outcome:?}");
    }
    assert_eq!(names(&guest.path("shelves/skills")), ["one"]);
}

#[test]
fn a_guest_without_shelves_takes_none() {
    let mut guest = Guest::start();
    let error = guest.call(request("one", ParcelKind::File)).result.expect_err("refused");
    assert_eq!(error.code, ErrorCode::BadRequest);
    let withdraw = Request::Withdraw { shelf: "skills".to_owned(), name: "one".to_owned() };
    assert_eq!(guest.call(withdraw).result.expect_err("refused").code, ErrorCode::BadRequest);
}

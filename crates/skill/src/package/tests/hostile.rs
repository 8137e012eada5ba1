//! What a stranger may send: each ends in a typed error that names the entry, and leaves nothing on disk.

use PackageProblemKind as Kind;

use super::*;

/// Checks that a package is refused: with the kind, the entry and words of the reason.
#[track_caller]
fn check_within(
    bytes: Vec<u8>,
    limits: PackageLimits,
    kind: PackageProblemKind,
    entry: Option<&str>,
    words: &str,
) {
    let error = read_all_within(bytes, limits).unwrap_err();
    let SkillError::InvalidPackage { path, entry: found, problem } = &error else { panic!("{error:?}") };
    assert_eq!((problem.kind(), found.as_deref()), (kind, entry), "{error}");
    assert_eq!(path, Path::new("p.skill"));
    assert!(error.to_string().contains(words), "{error}");
}

#[track_caller]
fn check(bytes: Vec<u8>, kind: PackageProblemKind, entry: Option<&str>, words: &str) {
    check_within(bytes, PackageLimits::default(), kind, entry, words);
}

/// Checks a good package with one bad entry, by its name.
#[track_caller]
fn check_entry(entry: Raw, kind: PackageProblemKind, words: &str) {
    let name = String::from_utf8_lossy(&entry.name).into_owned();
    check(good_with([entry]), kind, Some(name.trim_end_matches('/')), words);
}

#[test]
fn traversing_paths_are_rejected() {
    for path in [
        "../x",
        "good/../../x",
        "good/..",
        "/etc/cron.d/x",
        "good//x",
        "good/./x",
        "good\\..\\..\\x",
        "C:/x",
        "C:x",
        "good/x:stream",
        "good/NUL",
        "good/con.txt",
        "good/COM1",
        "good/x.",
        "good/x ",
        "good/a\u{202E}b",
        "good/a\u{200B}b",
        "good/a?b",
        "good/<a>",
    ] {
        check_entry(Raw::new(path, "x"), Kind::UnsafePath, "path that is refused");
    }
    check(good_with([Raw::new("good/a\0b", "x")]), Kind::UnsafePath, Some("good/a\0b"), "`good/a\\0b`");
    check(good_with([Raw::new("", "x")]), Kind::UnsafePath, Some(""), "empty");
    check(good_with([Raw::stored("/", "")]), Kind::UnsafePath, Some(""), "empty");
}

#[test]
fn links_and_special_files_are_refused() {
    let of_type = |mode: u32| Raw::stored("good/x", "/etc/passwd").with(|raw| raw.attributes = mode << 16);
    check_entry(of_type(0o120_777), Kind::Link, "is a link");
    for mode in [0o010_644, 0o020_644, 0o060_644, 0o140_644, 0o170_000] {
        check_entry(of_type(mode), Kind::SpecialFile, "neither a file nor a directory");
    }
}

#[test]
fn names_that_collide_on_some_file_system_are_rejected() {
    let pair = |a: &str, b: &str| good_with([Raw::new(a, "1"), Raw::new(b, "2")]);
    check(pair("good/a", "good/a"), Kind::Duplicate, Some("good/a"), "twice");
    let dirs = [Raw::stored("good/d/", ""), Raw::stored("good/d/", "")];
    check(good_with(dirs), Kind::Duplicate, Some("good/d"), "twice");
    check(pair("good/A", "good/a"), Kind::Duplicate, Some("good/a"), "differs from `good/A`");
    check(pair("good/\u{E9}", "good/e\u{301}"), Kind::Duplicate, Some("good/e\u{301}"), "Unicode form");
    check(pair("good/Straße", "good/STRASSE"), Kind::Duplicate, Some("good/STRASSE"), "differs");
    check(pair("good/stra\u{1E9E}e", "good/strasse"), Kind::Duplicate, Some("good/strasse"), "differs");
    check(pair("good/Sub/a", "good/sub/b"), Kind::Duplicate, Some("good/sub/b"), "differs from `good/Sub`");
    check(pair("good/a", "good/a/b"), Kind::FileAndDir, Some("good/a/b"), "both a file and a directory");
    check(pair("good/a/b", "good/a"), Kind::FileAndDir, Some("good/a"), "both");
    let both = [Raw::stored("good/a/", ""), Raw::stored("good/a", "")];
    check(good_with(both), Kind::FileAndDir, Some("good/a"), "both");
    let dir = |change: fn(&mut Raw)| Raw::stored("good/a/", "").with(change);
    check_entry(dir(|raw| raw.attributes = 0o100_644 << 16), Kind::FileAndDir, "both");
    check_entry(Raw::stored("good/a", "").with(|raw| raw.attributes = 0x10), Kind::FileAndDir, "both");
    check_entry(Raw::stored("good/a/", "content"), Kind::FileAndDir, "both");
    // Claims no bytes, and has some: an empty deflated stream, or anything else.
    let hidden = Raw::new("good/a/", "content").with(|raw| raw.size = 0);
    check_entry(hidden, Kind::Contradiction, "it is a directory and holds bytes");
    check_entry(Raw::new("good/a/", ""), Kind::Contradiction, "it is a directory and holds bytes");
    check_entry(dir(|raw| raw.crc = 1), Kind::Contradiction, "it is a directory and holds bytes");
}

#[test]
fn exactly_one_skill_file_decides_the_layout() {
    let md = |path: &str| Raw::new(path, SKILL_MD);
    check(archive(&[]), Kind::SkillFile, None, "no `SKILL.md`");
    check(archive(&[Raw::new("good/readme.md", "")]), Kind::SkillFile, None, "no `SKILL.md`");
    check(archive(&[md("a/b/SKILL.md")]), Kind::SkillFile, None, "no `SKILL.md`");
    check(archive(&[md("SKILL.md/")]), Kind::FileAndDir, Some("SKILL.md"), "both");
    check(
        good_with([md("SKILL.md")]),
        Kind::SkillFile,
        Some("good/SKILL.md"),
        "second `SKILL.md` beside `SKILL.md`",
    );
    check(
        good_with([md("other/SKILL.md")]),
        Kind::SkillFile,
        Some("other/SKILL.md"),
        "beside `good/SKILL.md`",
    );
    check(good_with([md("good/skill.md")]), Kind::Duplicate, Some("good/skill.md"), "case");
    check_entry(Raw::new("README.md", "x"), Kind::SkillFile, "outside the skill's directory `good`");
    check_entry(Raw::new("goodness/x", "x"), Kind::SkillFile, "outside");
    // Deeper ones are files like others.
    assert_eq!(
        read_all(good_with([md("good/examples/x/SKILL.md"), md("good/examples/SKILL.md")])).unwrap().len(),
        3
    );
}

#[test]
fn the_top_directory_is_named_as_the_skill() {
    check(archive(&[Raw::new("bad/SKILL.md", SKILL_MD)]), Kind::DirName, Some("bad"), "its skill, `good`");
    let decomposed = "---\nname: caf\u{E9}\ndescription: d\n---\n";
    assert!(read_all(archive(&[Raw::new("cafe\u{301}/SKILL.md", decomposed)])).is_ok());
}

#[test]
fn broken_frontmatter_is_reported_as_for_a_directory() {
    for content in [&b"none"[..], b"---\nname: x\n---\n", b"---\nname: \xff\n---\n"] {
        let error = read_all(archive(&[Raw::new("SKILL.md", content)])).unwrap_err();
        let SkillError::InvalidFrontmatter { path, diagnostics } = error else { panic!("{error:?}") };
        assert_eq!(path, Path::new("p.skill/SKILL.md"));
        assert!(diagnostics.iter().all(|finding| finding.path() == path));
    }
}

#[test]
fn unreadable_packages_are_rejected() {
    let file = || Raw::new("good/x", "content");
    for flag in [1, 1 << 6, 1 << 13] {
        check_entry(file().with(|raw| raw.flags |= flag), Kind::Encrypted, "without a password");
    }
    check_entry(file().with(|raw| raw.method = 99), Kind::Encrypted, "encrypted");
    check_entry(file().with(|raw| raw.extra = b"\x01\x99\0\0".to_vec()), Kind::Encrypted, "encrypted");
    for method in [1, 6, 9, 12, 14, 93, 95, 98] {
        check_entry(file().with(|raw| raw.method = method), Kind::Unsupported, "another compression");
    }
    check_entry(file().with(|raw| raw.flags |= 1 << 5), Kind::Unsupported, "patched");
    let latin = |flags| file().with(|raw| (raw.name, raw.flags) = (b"good/\xe9".to_vec(), flags));
    for flags in [0, 1 << 11] {
        check_entry(latin(flags), Kind::Encoding, "UTF-8");
    }
    check_entry(Raw::new("good/é", "").with(|raw| raw.flags = 0), Kind::Encoding, "marked as UTF-8");
    let mut extra = b"\x75\x70\x0d\0\x01\0\0\0\0".to_vec();
    extra.extend(b"good/y\0\0");
    check_entry(file().with(|raw| raw.extra = extra), Kind::Contradiction, "second, other path");
}

#[test]
fn truncated_packages_are_rejected() {
    let whole = good_with([Raw::new("good/x", "content")]);
    assert_eq!(read_all(whole.clone()).unwrap().len(), 2);
    for length in 0..whole.len() {
        let error = read_all(whole[..length].to_vec()).unwrap_err();
        let SkillError::InvalidPackage { problem, .. } = error else { panic!("{error:?}") };
        let expected =
            if length < 4 { vec![Kind::NotAnArchive] } else { vec![Kind::Truncated, Kind::NotAnArchive] };
        assert!(expected.contains(&problem.kind()), "{length}: {problem:?}");
    }
    check(Vec::new(), Kind::NotAnArchive, None, "not a ZIP archive");
    check(
        b"#!/bin/sh\necho this is no archive at all\n".to_vec(),
        Kind::NotAnArchive,
        None,
        "not a ZIP archive",
    );
}

#[test]
fn inconsistent_packages_are_rejected() {
    let file = || Raw::new("good/x", "content");
    let lies = [
        (file().with(|raw| raw.local_name = Some(b"good/y".to_vec())), "its name is another one"),
        (file().with(|raw| raw.local_size = Some(1)), "its size is another one"),
        (file().with(|raw| raw.after = b"hidden".to_vec()), "bytes that belong to nothing"),
        (file().with(|raw| raw.size = 6), "more bytes than it claims"),
        (file().with(|raw| raw.size = 8), "fewer bytes than it claims"),
        (Raw::stored("good/x", "content").with(|raw| raw.size = 8), "two sizes"),
        (file().with(|raw| raw.flags = 1 << 3), "other ones behind its content"),
        (file().with(|raw| (raw.flags, raw.after) = (1 << 3, vec![0; 12])), "other ones behind its content"),
        (file().with(|raw| raw.extra = vec![1, 0, 9]), "extra fields"),
        (file().with(|raw| raw.extra = b"\x01\0\0\0\x01\0\0\0".to_vec()), "two ZIP64 fields"),
        (file().with(|raw| (raw.size, raw.extra) = (u32::MAX, b"\x01\0\x04\0abcd".to_vec())), "too short"),
    ];
    for (entry, words) in lies {
        check_entry(entry, Kind::Contradiction, words);
    }
    let whole = good_with([file()]);
    check(
        [b"#!/bin/sh\n".to_vec(), whole.clone()].concat(),
        Kind::Contradiction,
        None,
        "between its central directory",
    );
    check([whole.clone(), whole.clone()].concat(), Kind::Contradiction, None, "");
    let mut appended = whole.clone();
    appended.extend(b"x");
    check(appended, Kind::Truncated, None, "end of its last record");
    let patched = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        let start = bytes.len() - 22;
        bytes[start + at] = value;
        bytes
    };
    check(patched(8, 1), Kind::Unsupported, None, "several volumes");
    check(patched(4, 1), Kind::Unsupported, None, "several volumes");
    for (entries, words) in [(1, "more entries than it says"), (3, "fewer entries than it says")] {
        let mut bytes = patched(8, entries);
        let start = bytes.len() - 22;
        bytes[start + 10] = entries;
        check(bytes, Kind::Contradiction, None, words);
    }
    // An end record in the comment of another: two archives in one.
    let mut two = whole.clone();
    let inner = end_record(0, 0, 0);
    let comment_at = two.len() - 2;
    two[comment_at..].copy_from_slice(&(inner.len() as u16).to_le_bytes());
    two.extend(inner);
    check(two, Kind::Contradiction, None, "two end records");
    // One there that is cut off, or whose own comment does not fit: some readers take it all the same.
    for (inner, rest) in [(4, 0), (10, 0), (22, 3), (22, 100)] {
        let mut two = whole.clone();
        let inner = [&end_record(0, 0, 0)[..inner], &vec![b'x'; rest]].concat();
        let comment_at = two.len() - 2;
        two[comment_at..].copy_from_slice(&(inner.len() as u16).to_le_bytes());
        two.extend(inner);
        check(two, Kind::Contradiction, None, "two end records");
    }
    // A plain comment is fine.
    let mut commented = whole;
    let comment_at = commented.len() - 2;
    commented[comment_at..].copy_from_slice(&5_u16.to_le_bytes());
    commented.extend(b"hello");
    assert!(read_all(commented).is_ok());
}

#[test]
fn overlapping_entries_are_rejected() {
    // The second entry of the directory points at the first: the bomb that unpacks one content many times.
    let same = good_with([Raw::new("good/x", "content").with(|raw| raw.offset = Some(0))]);
    check(same, Kind::Contradiction, Some("good/SKILL.md"), "shares bytes with the entry `good/x`");
    let inside = good_with([Raw::new("good/x", "content").with(|raw| raw.offset = Some(50))]);
    check(inside, Kind::Contradiction, Some("good/SKILL.md"), "shares bytes");
    let beyond = good_with([Raw::new("good/x", "content").with(|raw| raw.offset = Some(1 << 30))]);
    check(beyond, Kind::Truncated, Some("good/x"), "the place where it begins");
    let long = good_with([Raw::new("good/x", "content").with(|raw| raw.compressed = 1 << 30)]);
    check(long, Kind::Truncated, Some("good/x"), "a part of its content");
}

#[test]
fn zip_bombs_are_rejected_before_unpacking() {
    let zeros = vec![0; 2 << 20];
    check_entry(Raw::new("good/zeros", &zeros), Kind::Limit, "limit of 200 bytes for each compressed one");
    // Below the free size, any ratio will do.
    assert!(read_all(good_with([Raw::new("good/zeros", vec![0; 1 << 20])])).is_ok());
    // Ten gigabytes claimed, in the ZIP64 field as it must be.
    let mut extra = b"\x01\0\x08\0".to_vec();
    extra.extend((10_u64 << 30).to_le_bytes());
    let claim = Raw::new("good/huge", &zeros).with(|raw| (raw.size, raw.extra) = (u32::MAX, extra));
    check_entry(claim, Kind::Limit, "limit of 30000000 bytes");
    check_entry(
        Raw::stored("good/huge", "x").with(|raw| (raw.method, raw.size) = (8, 4_000_000_000)),
        Kind::Limit,
        "limit of 30000000 bytes",
    );
    // Claims little, holds much: counted, not trusted.
    let mut liar = Raw::new("good/liar", &zeros);
    liar.size = 10;
    check_entry(liar, Kind::Contradiction, "more bytes than it claims");
}

#[test]
fn every_limit_is_exact() {
    let limits = PackageLimits::default();
    let three = || good_with([Raw::stored("good/a", "12345"), Raw::stored("good/b/c", "12345")]);
    let total = SKILL_MD.len() as u64 + 10;
    let bytes = three().len() as u64;
    let exact = PackageLimits {
        archive_bytes: bytes,
        // With the directories `good` and `good/b`, which have no entries.
        entries: 5,
        total_bytes: total,
        entry_bytes: SKILL_MD.len() as u64,
        path_bytes: "good/SKILL.md".len(),
        path_depth: 3,
        ..limits
    };
    assert_eq!(read_all_within(three(), exact).unwrap().len(), 3);
    let check = |limits, entry, words| check_within(three(), limits, Kind::Limit, entry, words);
    check(PackageLimits { entries: 2, ..exact }, None, "limit of 2 entries");
    check(PackageLimits { entries: 4, ..exact }, Some("good/b/c"), "limit of 4 files and directories");
    check(PackageLimits { entries: 3, ..exact }, Some("good/b/c"), "limit of 3 files and directories");
    check(PackageLimits { total_bytes: total - 1, ..exact }, Some("good/b/c"), "bytes together");
    let entry_bytes = SKILL_MD.len() as u64 - 1;
    check(PackageLimits { entry_bytes, ..exact }, Some("good/SKILL.md"), "limit of");
    check(PackageLimits { path_bytes: 12, ..exact }, Some("good/SKILL.md"), "12 bytes in its path");
    check(PackageLimits { path_depth: 2, ..exact }, Some("good/b/c"), "2 levels");
    let error = read_all_within(three(), PackageLimits { archive_bytes: bytes - 1, ..exact }).unwrap_err();
    assert!(matches!(error, SkillError::TooLarge { limit, .. } if limit == bytes - 1));
}

#[test]
fn damaged_content_is_refused() {
    let file = || Raw::new("good/x", "content that is long enough to be compressed, content, content");
    check_entry(file().with(|raw| raw.crc ^= 1), Kind::Corrupt, "checksum");
    let cut = file().with(|raw| {
        raw.data.pop();
        raw.compressed -= 1;
    });
    check_entry(cut, Kind::Corrupt, "has no end");
    let longer = file().with(|raw| {
        raw.data.push(0);
        raw.compressed += 1;
    });
    check_entry(longer, Kind::Corrupt, "bytes follow");
    let nonsense = Raw::stored("good/x", [0xff; 9]).with(|raw| raw.method = 8);
    check_entry(nonsense, Kind::Corrupt, "not deflated data");
}

#[test]
fn messages_stay_on_one_short_line() {
    let name = format!("good/{}\n\u{1b}[31m", "x".repeat(400));
    let error = read_all(good_with([Raw::new(&name, "")])).unwrap_err().to_string();
    assert!(error.len() < 300 && !error.contains(['\n', '\u{1b}']), "{error}");
    let zip64 = {
        let mut bytes = good_with([]);
        let end = bytes.split_off(bytes.len() - 22);
        bytes.extend(b"PK\x06\x07");
        bytes.extend([0; 16]);
        [bytes, end].concat()
    };
    check(zip64, Kind::Unsupported, None, "ZIP64 end record");
}

//! Packing, and reading what was packed.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::{Skill, SkillErrorKind};

/// A directory `good` with a skill of these files.
pub(super) fn dir_with(files: &[(&str, &str)]) -> (TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap().join("good");
    write(&dir, "SKILL.md", SKILL_MD);
    for (path, content) in files {
        write(&dir, path, content);
    }
    (temp, dir)
}

fn packed(dir: &Path) -> Result<(Vec<u8>, PackReport), SkillError> {
    let mut bytes = Vec::new();
    pack(dir, &mut bytes, PackageLimits::default()).map(|packed| (bytes, packed))
}

#[test]
fn a_packed_skill_is_the_same_skill() {
    let (temp, dir) = dir_with(&[("scripts/run.sh", "#!/bin/sh\n"), ("references/é.md", "x"), ("empty", "")]);
    fs::set_permissions(dir.join("scripts/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("references/é.md", dir.join("link.md")).unwrap();
    let output = temp.path().join("out.skill");
    let done = pack_file(&dir, &output, PackageLimits::default()).unwrap();
    let expected = ["SKILL.md", "empty", "link.md", "references/é.md", "scripts/run.sh"].map(PathBuf::from);
    assert_eq!(done.files, expected);
    assert_eq!(done.package_bytes, fs::metadata(&output).unwrap().len());
    assert_eq!((done.output.as_deref(), done.total_bytes), (Some(&*output), SKILL_MD.len() as u64 + 12));
    let skill = load_skill_file(&output, Mode::Strict).unwrap();
    assert_eq!(skill.digests().unwrap(), Skill::load(&dir, Mode::Strict).unwrap().digests().unwrap());
    let mode = |path: &str| fs::metadata(skill.root_dir().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("scripts/run.sh"), mode("empty")), (0o700, 0o600));
    // The path to `SKILL.md` stands for its directory, and a directory for the file in it.
    let named =
        pack_file(dir.join("SKILL.md"), temp.path(), PackageLimits::default()).unwrap().output.unwrap();
    assert_eq!(named.file_name().unwrap(), "good.skill");
    assert_eq!(fs::read(named).unwrap(), fs::read(output).unwrap());
}

#[test]
fn the_same_files_give_the_same_bytes() {
    let files = [("b", "2"), ("a/x", "1"), ("a.txt", "3")];
    let (_one, first) = dir_with(&files);
    let (_two, second) = dir_with(&files);
    fs::remove_file(second.join("b")).unwrap();
    write(&second, "b", "2");
    for path in ["b", "a/x"] {
        let file = fs::File::open(second.join(path)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000)).unwrap();
        fs::set_permissions(second.join(path), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let bytes = packed(&first).unwrap().0;
    assert_eq!(bytes, packed(&second).unwrap().0);
    let names: Vec<_> = read_all(bytes).unwrap().into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, ["SKILL.md", "a.txt", "a/x", "b"]);
}

#[test]
fn tool_files_are_skipped() {
    let (_temp, dir) = dir_with(&[
        ("scripts/a.py", ""),
        ("scripts/__pycache__/a.pyc", ""),
        ("scripts/b.pyc", ""),
        ("node_modules/x/index.js", ""),
        (".git/HEAD", ""),
        ("sub/.DS_Store", ""),
        ("evals/evals.json", ""),
        ("sub/evals/kept.json", ""),
        (".hidden", ""),
    ]);
    let (_, packed) = packed(&dir).unwrap();
    assert_eq!(
        packed.files,
        [".hidden", "SKILL.md", "scripts/a.py", "sub/evals/kept.json"].map(PathBuf::from)
    );
    assert_eq!(packed.skipped, ["evals/evals.json", "scripts/b.pyc", "sub/.DS_Store"].map(PathBuf::from));
}

#[test]
fn files_that_unpacking_rejects_are_not_packed() {
    type Change = fn(&Path);
    let cases: [(Change, SkillErrorKind, &str); 9] = [
        (|dir| symlink("/etc/passwd", dir.join("x")).unwrap(), SkillErrorKind::PathNotAllowed, "leads out"),
        (|dir| symlink("../x", dir.join("x")).unwrap(), SkillErrorKind::PathNotAllowed, "leads out"),
        (|dir| symlink("absent", dir.join("x")).unwrap(), SkillErrorKind::FileNotFound, "x"),
        (|dir| symlink(".", dir.join("x")).unwrap(), SkillErrorKind::PathNotAllowed, "not a regular file"),
        (|dir| write(dir, "NUL", ""), SkillErrorKind::InvalidPackage, "`good/NUL`"),
        (|dir| write(dir, "a\\b", ""), SkillErrorKind::InvalidPackage, "backslash"),
        (|dir| (write(dir, "A", ""), write(dir, "a", "")).1, SkillErrorKind::InvalidPackage, "case"),
        (|dir| write(dir, "skill.md", ""), SkillErrorKind::InvalidPackage, "case"),
        (
            |dir| rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("x"), rustix::fs::Mode::RWXU).unwrap(),
            SkillErrorKind::InvalidPackage,
            "neither a file nor a directory",
        ),
    ];
    for (change, kind, words) in cases {
        let (temp, dir) = dir_with(&[]);
        change(&dir);
        let output = temp.path().join("out.skill");
        let error = pack_file(&dir, &output, PackageLimits::default()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1, "something was left on disk: {error}");
    }
    let (_temp, dir) = dir_with(&[("SKILL.md", "---\nname: other\ndescription: d\n---\n")]);
    assert_eq!(packed(&dir).unwrap_err().kind(), SkillErrorKind::InvalidFrontmatter);
    let not_utf8 = std::ffi::OsStr::from_bytes(b"a\xff");
    let (_temp, dir) = dir_with(&[]);
    fs::write(dir.join(not_utf8), "").unwrap();
    assert!(packed(&dir).unwrap_err().to_string().contains("UTF-8"));
}

#[test]
fn packing_applies_the_limits_of_unpacking() {
    let (_temp, dir) = dir_with(&[("a", "12345"), ("b", "12345")]);
    let total = SKILL_MD.len() as u64 + 10;
    let limits = PackageLimits { total_bytes: total, entries: 4, ..PackageLimits::default() };
    let pack_within = |limits| pack(&dir, &mut Vec::new(), limits);
    assert_eq!(pack_within(limits).unwrap().total_bytes, total);
    for (limits, words) in [
        (PackageLimits { total_bytes: total - 1, ..limits }, "`good/b` has more than the limit of"),
        (PackageLimits { entries: 2, ..limits }, "limit of 2 files and directories"),
        (PackageLimits { entry_bytes: 4, ..limits }, "larger than the limit of 4 bytes"),
        (PackageLimits { archive_bytes: 100, ..limits }, "larger than the limit of 100 bytes"),
        (PackageLimits { path_depth: 1, ..limits }, "1 levels"),
    ] {
        let error = pack_within(limits).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    // What deflates too well to be believed is stored.
    write(&dir, "zeros", vec![0; 2 << 20]);
    assert_eq!(read_all(packed(&dir).unwrap().0).unwrap().len(), 4);
}

#[test]
fn the_output_is_replaced_atomically_and_never_within_the_skill() {
    let (temp, dir) = dir_with(&[]);
    let output = temp.path().join("out.skill");
    fs::write(&output, "before").unwrap();
    symlink("absent", dir.join("bad")).unwrap();
    pack_file(&dir, &output, PackageLimits::default()).unwrap_err();
    assert_eq!(fs::read(&output).unwrap(), b"before");
    fs::remove_file(dir.join("bad")).unwrap();
    pack_file(&dir, &output, PackageLimits::default()).unwrap();
    assert!(load_skill_file(&output, Mode::Strict).is_ok());
    for inside in [dir.join("out.skill"), dir.clone()] {
        let error = pack_file(&dir, inside, PackageLimits::default()).unwrap_err();
        assert_eq!(error.kind(), SkillErrorKind::InvalidStructure);
    }
    // Nothing but the skill and its package is left.
    let mut left: Vec<_> =
        fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["good", "out.skill"]);
    assert_eq!(fs::metadata(&output).unwrap().permissions().mode() & 0o600, 0o600);
    let nowhere = pack_file(&dir, temp.path().join("absent/out.skill"), PackageLimits::default());
    assert_eq!(nowhere.unwrap_err().kind(), SkillErrorKind::Write);
}

#[test]
fn only_regular_files_are_replaced() {
    let (temp, dir) = dir_with(&[]);
    fs::write(temp.path().join("plain"), "before").unwrap();
    symlink("plain", temp.path().join("link")).unwrap();
    symlink("absent", temp.path().join("dangling")).unwrap();
    let pipe = temp.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::RWXU).unwrap();
    let listed = || {
        let kind = |entry: fs::DirEntry| (entry.file_name(), entry.file_type().unwrap());
        let mut all: Vec<_> = fs::read_dir(temp.path()).unwrap().map(|entry| kind(entry.unwrap())).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    };
    let before = listed();
    for name in ["link", "dangling", "pipe"] {
        let error = pack_file(&dir, temp.path().join(name), PackageLimits::default()).unwrap_err();
        let SkillError::Write { path, source } = &error else { panic!("{error:?}") };
        assert_eq!(path, &temp.path().join(name));
        assert!(source.to_string().contains("is replaced"), "{source}");
    }
    assert_eq!(listed(), before);
    assert_eq!(fs::read(temp.path().join("plain")).unwrap(), b"before");
    // A link to a directory is a directory.
    symlink(temp.path(), temp.path().join("here")).unwrap();
    pack_file(&dir, temp.path().join("here"), PackageLimits::default()).unwrap();
    assert!(temp.path().join("good.skill").is_file());
}

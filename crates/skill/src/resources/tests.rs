use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;
use crate::error::SkillErrorKind;
use crate::{Mode, validate};

/// A skill `s` with these files beside its `SKILL.md`.
fn skill_with(files: &[(&str, &str)]) -> (TempDir, Skill) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("s");
    let all = files.iter().copied().chain([("SKILL.md", "---\nname: s\ndescription: d\n---\n")]);
    for (path, content) in all {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    assert_eq!(validate(&dir, Mode::Strict), []);
    (temp, Skill::load(dir, Mode::Strict).unwrap())
}

fn paths(resources: &[Resource]) -> Vec<&str> {
    resources.iter().map(|resource| resource.path().to_str().unwrap()).collect()
}

#[test]
fn files_are_sorted_into_their_groups() {
    let (_temp, skill) = skill_with(&[
        ("scripts/run.sh", "12345"),
        ("scripts/lib/a.py", ""),
        ("references/r.md", ""),
        ("assets/logo.png", ""),
        ("LICENSE", ""),
        ("scripts.txt", ""),
        ("core/x.py", ""),
        ("nested/SKILL.md", ""),
        (".git/config", ""),
        ("node_modules/m/index.js", ""),
    ]);
    let resources = skill.resources().unwrap();
    assert_eq!(paths(&resources.scripts), ["scripts/lib/a.py", "scripts/run.sh"]);
    assert_eq!(paths(&resources.references), ["references/r.md"]);
    assert_eq!(paths(&resources.assets), ["assets/logo.png"]);
    assert_eq!(paths(&resources.other), ["LICENSE", "core/x.py", "nested/SKILL.md", "scripts.txt"]);
    assert_eq!(resources.scripts[1].size(), 5);
    assert_eq!((resources.len(), resources.iter().count(), resources.is_empty()), (8, 8, false));
}

#[test]
fn links_are_followed_within_the_skill_only() {
    let (temp, skill) = skill_with(&[("references/real.md", "inside")]);
    let root = skill.root_dir();
    fs::write(temp.path().join("secret"), "outside").unwrap();
    symlink("references/real.md", root.join("inner.md")).unwrap();
    symlink("../secret", root.join("outer")).unwrap();
    symlink(temp.path(), root.join("up")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("references", root.join("refs")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), rustix::fs::Mode::RWXU).unwrap();

    let resources = skill.resources().unwrap();
    assert_eq!(paths(&resources.other), ["inner.md"]);
    assert_eq!(skill.read_resource("inner.md").unwrap(), b"inside");
    assert_eq!(skill.read_resource("refs/real.md").unwrap(), b"inside");
    assert_eq!(skill.read_resource("references/../inner.md").unwrap(), b"inside");
    let refused = ["outer", "up/secret", "../secret", "/etc/passwd", "loop", "pipe", "references", "."];
    for path in refused {
        let error = skill.read_resource(path).unwrap_err();
        assert_eq!(error.kind(), SkillErrorKind::PathNotAllowed, "{path}: {error}");
    }
    for path in ["absent", "inner.md/x", ""] {
        assert_eq!(skill.read_resource(path).unwrap_err().kind(), SkillErrorKind::FileNotFound, "{path}");
    }
}

#[test]
fn a_read_is_bounded() {
    let (_temp, skill) = skill_with(&[("big", "123456")]);
    assert_eq!(skill.read_resource_up_to("big", 6).unwrap().len(), 6);
    assert_eq!(skill.read_resource_up_to("big", 5).unwrap_err().kind(), SkillErrorKind::TooLarge);
}

#[test]
fn the_digest_is_the_published_one() {
    let (_temp, skill) = skill_with(&[("scripts/run.sh", "#!/bin/sh\n"), (".git/HEAD", "x")]);
    fs::write(skill.location(), "# Hello\n").unwrap();
    assert_eq!(
        skill.digest().unwrap().to_string(),
        "sha256:34f7a8c484e9991f3e71a309f31332d6335efc01f544105c4185a7c4ab12eb1e"
    );
    let digests = skill.digests().unwrap();
    assert_eq!(digests.files()[Path::new("scripts/run.sh")], Digest::of_bytes(b"#!/bin/sh\n"));
    assert_eq!(digests.files().len(), 2);
}

#[test]
fn every_change_changes_the_digest() {
    let (_temp, skill) = skill_with(&[("a", "1")]);
    let mut seen = std::collections::HashSet::from([skill.digest().unwrap()]);
    let root = skill.root_dir();
    let mut change = |change: &dyn Fn()| {
        change();
        assert!(seen.insert(skill.digest().unwrap()));
    };
    change(&|| fs::write(root.join("a"), "2").unwrap());
    change(&|| fs::rename(root.join("a"), root.join("b")).unwrap());
    change(&|| symlink("nowhere", root.join("link")).unwrap());
    change(&|| {
        fs::remove_file(root.join("link")).unwrap();
        symlink("/etc", root.join("link")).unwrap();
    });
}

#[test]
fn only_the_start_of_large_files_is_read_and_escaping_links_are_rejected() {
    use std::os::unix::fs::PermissionsExt as _;

    let (temp, skill) = skill_with(&[("run", "#!/bin/sh\necho\n"), ("empty", "")]);
    let run = skill.root_dir().join("run");
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
    let start = skill.resource_start("run", 9).unwrap();
    assert_eq!(start, ResourceStart { bytes: b"#!/bin/sh".to_vec(), size: 15, is_executable: true });
    let empty = skill.resource_start("./empty", 9).unwrap();
    assert_eq!(empty, ResourceStart { bytes: Vec::new(), size: 0, is_executable: false });
    fs::write(temp.path().join("outside"), "").unwrap();
    symlink("../outside", skill.root_dir().join("out")).unwrap();
    for path in ["out", "../outside", "/etc/passwd"] {
        let error = skill.resource_start(path, 9).unwrap_err();
        assert_eq!(error.kind(), SkillErrorKind::PathNotAllowed, "{path}");
    }
}

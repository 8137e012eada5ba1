//! Packages that are fine, and the directories that they are unpacked into.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;

use super::*;
use crate::{Catalog, Missing, SkillErrorKind, discover};
use crate::{DiscoveryLimits, Scope, scan_directory};

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn both_layouts_are_read() {
    let in_dir = good_with([Raw::new("good/scripts/a.py", "print()"), Raw::stored("good/empty/", "")]);
    let at_root = archive(&[Raw::stored("scripts/a.py", "print()"), Raw::stored("SKILL.md", SKILL_MD)]);
    for bytes in [in_dir, at_root] {
        let package = Package::from_bytes(bytes.clone(), "p.skill", PackageLimits::default()).unwrap();
        assert_eq!(package.frontmatter(Mode::Strict).unwrap().name().as_str(), "good");
        let mut files: Vec<_> =
            package.files().map(|file| (file.path().to_str().unwrap(), file.size())).collect();
        files.sort_unstable();
        assert_eq!(files, [("SKILL.md", SKILL_MD.len() as u64), ("scripts/a.py", 7)]);
        assert_eq!(package.digest(), conjure_base::Digest::of_bytes(&bytes));
        assert_eq!(package.read("absent").unwrap_err().kind(), SkillErrorKind::FileNotFound);
        let temp = tempfile::tempdir().unwrap();
        let skill = package.extract(Some(temp.path())).unwrap().load(Mode::Strict).unwrap();
        assert_eq!(skill.root_dir().file_name().unwrap(), "good");
        assert_eq!(
            (skill.body().unwrap(), skill.package()),
            ("# Body".to_owned(), Some(Path::new("p.skill")))
        );
        assert_eq!(skill.read_resource("scripts/a.py").unwrap(), b"print()");
    }
}

#[test]
fn packages_of_other_tools_are_read() {
    // A descriptor behind the content, with and without its signature, in both widths.
    let streamed = |wide: bool, signed: bool| {
        Raw::new("good/x", "content").with(|raw| {
            raw.flags = 1 << 3;
            let mut after = if signed { b"PK\x07\x08".to_vec() } else { Vec::new() };
            after.extend(raw.crc.to_le_bytes());
            for size in [raw.compressed, raw.size] {
                after.extend(&u64::from(size).to_le_bytes()[..if wide { 8 } else { 4 }]);
            }
            (raw.after, raw.local_size) = (after, Some(0));
        })
    };
    for (wide, signed) in [(false, false), (false, true), (true, false), (true, true)] {
        assert_eq!(read_all(good_with([streamed(wide, signed)])).unwrap()[1].1, b"content");
    }
    // Sizes in the ZIP64 field, and a field that means nothing here.
    let wide = Raw::new("good/x", "content").with(|raw| {
        let mut extra = b"\x01\0\x10\0".to_vec();
        extra.extend(u64::from(raw.size).to_le_bytes());
        extra.extend(u64::from(raw.compressed).to_le_bytes());
        extra.extend(b"UT\x01\0\x03");
        (raw.extra, raw.size, raw.compressed) = (extra, u32::MAX, u32::MAX);
    });
    assert_eq!(read_all(good_with([wide])).unwrap()[1].1, b"content");
    // Apple's own files are no part of the skill.
    let apple = [Raw::new("__MACOSX/good/._SKILL.md", "x"), Raw::stored("__MACOSX/", "")];
    assert_eq!(read_all(good_with(apple)).unwrap().len(), 1);
    // A package in a package is a file like any other.
    let nested =
        good_with([Raw::stored("good/inner.zip", good_with([])), Raw::stored("good/b.skill", "no archive")]);
    assert_eq!(read_all(nested).unwrap()[1].1, good_with([]));
}

#[test]
fn files_are_the_owners_and_executable_when_the_package_says_so() {
    let with_mode = |name: &str, content: &str, mode: u32| {
        Raw::new(name, content).with(|raw| raw.attributes = mode << 16)
    };
    let package = good_with([
        with_mode("good/run", "x", 0o100_755),
        with_mode("good/setuid", "x", 0o104_711),
        with_mode("good/plain", "#!/bin/sh", 0o100_644),
        Raw::new("good/script", "#!/bin/sh"),
        Raw::new("good/text", "# no script"),
    ]);
    let temp = tempfile::tempdir().unwrap();
    let package = Package::from_bytes(package, "p.skill", PackageLimits::default()).unwrap();
    let extracted = package.extract(Some(temp.path())).unwrap();
    let modes =
        ["run", "setuid", "plain", "script", "text"].map(|name| mode_of(&extracted.path().join(name)));
    assert_eq!(modes, [0o700, 0o700, 0o600, 0o700, 0o600]);
    assert_eq!(mode_of(extracted.path()), 0o700);
    assert_eq!(mode_of(extracted.path().parent().unwrap()), 0o700);
}

#[test]
fn the_unpacked_directory_is_removed_with_its_last_user() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("a.skill");
    fs::write(&path, good_with([])).unwrap();
    let skill = load_skill_file(&path, Mode::Strict).unwrap();
    let dir = skill.root_dir().to_owned();
    let catalog = Catalog::new([skill.clone()]);
    drop(skill);
    let taken = Arc::clone(catalog.get("good").unwrap());
    drop(catalog);
    assert_eq!(taken.body().unwrap(), "# Body");
    drop(taken);
    assert!(!dir.exists() && !dir.parent().unwrap().exists());

    let extracted = extract_skill_file(&path).unwrap();
    let dir = extracted.path().to_owned();
    let skill = extracted.load(Mode::Strict).unwrap();
    drop(extracted);
    assert!(skill.location().exists());
    drop(skill);
    assert!(!dir.exists());
}

#[test]
fn only_plain_files_are_packages() {
    let temp = tempfile::tempdir().unwrap();
    let missing = load_skill_file(temp.path().join("absent.skill"), Mode::Strict).unwrap_err();
    assert_eq!(missing.kind(), SkillErrorKind::FileNotFound);
    let dir = load_skill_file(temp.path(), Mode::Strict).unwrap_err();
    assert_eq!(dir.kind(), SkillErrorKind::PathNotAllowed);
    let pipe = temp.path().join("pipe.skill");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    assert_eq!(load_skill_file(&pipe, Mode::Strict).unwrap_err().kind(), SkillErrorKind::PathNotAllowed);
    // A directory where nothing can be made.
    let package = Package::from_bytes(good_with([]), "p.skill", PackageLimits::default()).unwrap();
    let error = package.extract(Some(&temp.path().join("absent"))).unwrap_err();
    assert_eq!(error.kind(), SkillErrorKind::Write);
}

#[test]
fn discovery_finds_packages_beside_directories() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().canonicalize().unwrap();
    write(&root, "plain/SKILL.md", "---\nname: plain\ndescription: d\n---\n");
    write(&root, "group/packed.skill", good_with([]));
    write(&root, "broken.skill", "no archive");
    write(&root, "plain/inner.skill", "of no interest");
    write(&root, "z/again.skill", good_with([]));
    fs::create_dir(root.join("directory.skill")).unwrap();
    symlink("group/packed.skill", root.join("link.skill")).unwrap();
    let found = discover(&[Scope::named(&root)], DiscoveryLimits::default(), Mode::Lenient);
    let names: Vec<_> = found.skills.iter().map(|skill| (skill.name().as_str(), skill.package())).collect();
    assert_eq!(names, [("good", Some(&*root.join("group/packed.skill"))), ("plain", None)]);
    let findings: Vec<_> = found.diagnostics.iter().map(|finding| (finding.rule(), finding.path())).collect();
    assert_eq!(
        findings,
        [
            (crate::RuleId::PackageInvalid, &*root.join("broken.skill")),
            (crate::RuleId::NameCollision, &*root.join("z/again.skill")),
        ]
    );
    let dirs = found.skills.iter().map(|skill| skill.root_dir().to_owned()).collect::<Vec<_>>();
    let paths = scan_directory(&root, DiscoveryLimits::default()).unwrap();
    let expected =
        ["broken.skill", "group/packed.skill", "plain", "z/again.skill"].map(|path| root.join(path));
    assert_eq!(paths, expected);
    // The scope may be the package.
    let one = crate::load_all([root.join("link.skill")]).unwrap();
    assert_eq!(one.skills[0].name().as_str(), "good");
    let not_one = crate::load_all([root.join("plain/SKILL.md")]).unwrap_err();
    assert!(matches!(not_one, SkillError::NotFound { missing: Missing::Dir, .. }));
    drop((found, one));
    assert!(!dirs[0].exists());
}

#[test]
fn all_packages_of_a_discovery_have_one_budget() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (root, name) in [(&one, "a"), (&one, "b"), (&two, "c"), (&two, "d")] {
        let content = format!("---\nname: {name}\ndescription: d\n---\n");
        // Three blocks: a directory, and two files of at most one.
        let files =
            [Raw::new(&format!("{name}/SKILL.md"), content), Raw::new(&format!("{name}/x"), [0; 4096])];
        write(root.path(), &format!("{name}.skill"), archive(&files));
    }
    let scopes = [Scope::named(one.path()), Scope::named(two.path())];
    let within = |blocks: u64| {
        let bounds = DiscoveryLimits { package_bytes: blocks * 4096, ..DiscoveryLimits::default() };
        let found = discover(&scopes, bounds, Mode::Lenient);
        let refused = found.diagnostics.iter().map(|finding| {
            assert_eq!(
                (finding.rule(), finding.is_error()),
                (crate::RuleId::PackageBudget, true),
                "{finding}"
            );
            finding.path().file_stem().unwrap().to_str().unwrap().to_owned()
        });
        let refused: Vec<_> = refused.collect();
        let names: Vec<_> = found.skills.iter().map(|skill| skill.name().to_string()).collect();
        (names.concat(), refused.concat())
    };
    let expected = |names: &str, refused: &str| (names.to_owned(), refused.to_owned());
    assert_eq!(within(12), expected("abcd", ""));
    assert_eq!(within(11), expected("abc", "d"));
    assert_eq!(within(8), expected("ab", "cd"));
    assert_eq!(within(0), expected("", "abcd"));
}

#[test]
fn a_missing_name_is_taken_from_the_top_directory() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("p.skill");
    for content in
        ["---\ndescription: Does good\n---\n# Body\n", "---\nname: ' '\ndescription: d\n---\n# Body\n"]
    {
        fs::write(&path, archive(&[Raw::new("good/SKILL.md", content)])).unwrap();
        let skill = load_skill_file(&path, Mode::Lenient).unwrap();
        assert_eq!((skill.name().as_str(), skill.body().unwrap().as_str()), ("good", "# Body"));
        assert_eq!(skill.root_dir().file_name().unwrap(), "good");
        let [finding] = skill.diagnostics() else { panic!("{:?}", skill.diagnostics()) };
        assert!(finding.message().contains("took the directory's, `good`"), "{finding}");
        assert_eq!(
            load_skill_file(&path, Mode::Strict).unwrap_err().kind(),
            SkillErrorKind::InvalidFrontmatter
        );
        // At the root there is no directory to take it from.
        fs::write(&path, archive(&[Raw::new("SKILL.md", content)])).unwrap();
        assert_eq!(
            load_skill_file(&path, Mode::Lenient).unwrap_err().kind(),
            SkillErrorKind::InvalidFrontmatter
        );
    }
}

#[test]
fn findings_in_a_package_name_the_package() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("p.skill");
    let content = "---\nname: good\ndescription: Use when: asked\n---\n";
    fs::write(&path, archive(&[Raw::new("SKILL.md", content)])).unwrap();
    assert_eq!(load_skill_file(&path, Mode::Strict).unwrap_err().kind(), SkillErrorKind::InvalidFrontmatter);
    let skill = load_skill_file(&path, Mode::Lenient).unwrap();
    assert_eq!(skill.diagnostics()[0].path(), path.join("SKILL.md"));
    // Also when it was unpacked, which is lenient, before it was validated.
    let unpacked = extract_skill_file(&path).unwrap();
    let error = unpacked.load(Mode::Strict).unwrap_err();
    assert_eq!(error.path(), path.join("SKILL.md"));
    for mode in [Mode::Strict, Mode::Lenient] {
        let findings = unpacked.validate(mode);
        assert!(
            !findings.is_empty() && findings.iter().all(|finding| finding.path() == path.join("SKILL.md"))
        );
    }
}

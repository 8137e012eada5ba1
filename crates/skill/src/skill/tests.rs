use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::error::SkillErrorKind;
use crate::validate;

const GOOD: &str = "---\nname: good\ndescription: Does good\n---\n\n# Body\n";

/// A directory `good` whose `SKILL.md` has this content.
fn with_content(content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap().join("good");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("SKILL.md"), content).unwrap();
    (temp, dir)
}

/// The rules that a content breaks in a mode.
#[track_caller]
fn check(content: impl AsRef<[u8]>, mode: Mode, expected: &[RuleId]) {
    let (_temp, dir) = with_content(content);
    let rules: Vec<_> = validate(&dir, mode).iter().map(Diagnostic::rule).collect();
    assert_eq!(rules, expected);
}

#[test]
fn metadata_is_loaded_first_and_the_body_on_demand() {
    let (_temp, dir) = with_content(GOOD);
    for mode in [Mode::Strict, Mode::Lenient] {
        for path in [dir.clone(), dir.join("SKILL.md")] {
            let skill = Skill::load(path, mode).unwrap();
            assert_eq!((skill.name().as_str(), skill.description()), ("good", "Does good"));
            assert_eq!((skill.root_dir(), skill.location()), (&*dir, &*dir.join("SKILL.md")));
            assert_eq!(skill.body().unwrap(), "# Body");
        }
    }
    let skill = Skill::load(&dir, Mode::Strict).unwrap();
    fs::remove_file(dir.join("SKILL.md")).unwrap();
    assert_eq!(skill.body().unwrap_err().kind(), SkillErrorKind::FileNotFound);
}

#[test]
fn all_fields_are_kept() {
    let content = "---\nname: good\ndescription: d\nlicense: MIT\ncompatibility: c\nallowed-tools: Read Bash(git:*)\n\
                   metadata:\n  version: 1.10\n  author: me\n---\n";
    let (_temp, dir) = with_content(content);
    for mode in [Mode::Strict, Mode::Lenient] {
        let skill = Skill::load(&dir, mode).unwrap();
        assert_eq!(skill.license(), Some("MIT"));
        assert_eq!(skill.compatibility(), Some("c"));
        assert_eq!(skill.allowed_tools(), Some("Read Bash(git:*)"));
        let metadata: Vec<_> = skill.metadata().iter().collect();
        assert_eq!(metadata, [("version", "1.10"), ("author", "me")]);
        assert_eq!(skill.diagnostics(), []);
    }
}

#[test]
fn line_ends_may_be_any() {
    for ending in ["\n", "\r\n", "\r"] {
        let (_temp, dir) = with_content(GOOD.replace('\n', ending));
        for mode in [Mode::Strict, Mode::Lenient] {
            let skill = Skill::load(&dir, mode).unwrap();
            assert_eq!((skill.description(), &*skill.body().unwrap()), ("Does good", "# Body"), "{ending:?}");
        }
    }
}

#[test]
fn a_long_frontmatter_is_read_completely_without_the_body() {
    let metadata: String = (0..2000).map(|index| format!("  key-{index}: é{index}\n")).collect();
    let (_temp, dir) =
        with_content(format!("---\nname: good\ndescription: d\nmetadata:\n{metadata}---\nbody"));
    for mode in [Mode::Strict, Mode::Lenient] {
        assert_eq!(Skill::load(&dir, mode).unwrap().metadata().len(), 2000);
    }
    let huge = format!("---\nname: good\ndescription: d\n---\n{}", "x".repeat(17 * 1024 * 1024));
    let (_temp, dir) = with_content(huge);
    let skill = Skill::load(&dir, Mode::Lenient).unwrap();
    assert_eq!(skill.body().unwrap_err().kind(), SkillErrorKind::TooLarge);
    assert_eq!(Skill::load(&dir, Mode::Strict).unwrap_err().kind(), SkillErrorKind::TooLarge);
}

#[test]
fn a_frontmatter_without_end_is_bounded() {
    let endless = format!("---\nname: good\n{}", "# é\n".repeat(400_000));
    check(&endless, Mode::Lenient, &[RuleId::FrontmatterTooLarge]);
    check(&endless, Mode::Strict, &[RuleId::FrontmatterTooLarge]);
    check("---\nname: good\n", Mode::Lenient, &[RuleId::FrontmatterUnclosed]);
}

#[test]
fn errors_of_strict_mode_are_warnings_in_lenient_mode() {
    let cases: [(&str, RuleId); 7] = [
        ("name: other\ndescription: d", RuleId::NameDirectoryMismatch),
        ("name: good\ndescription: Use when: x", RuleId::FrontmatterRepaired),
        ("name: good\ndescription: d\nallowed_tools: x", RuleId::UnknownField),
        ("description: d", RuleId::NameMissing),
        ("name: good\ndescription: d\nmetadata: [a]", RuleId::FrontmatterRepaired),
        ("name: good\ndescription: d\nmetadata:\n  a:\n    b: c", RuleId::MetadataShape),
        ("name: good\ndescription: &x d", RuleId::FrontmatterRepaired),
    ];
    for (fields, rule) in cases {
        let (_temp, dir) = with_content(format!("---\n{fields}\n---\n"));
        let strict = validate(&dir, Mode::Strict);
        assert!(strict.iter().any(Diagnostic::is_error), "{fields:?}");
        let skill = Skill::load(&dir, Mode::Lenient).unwrap();
        assert_eq!(skill.diagnostics()[0].rule(), rule, "{fields:?}");
        assert_eq!(skill.diagnostics()[0].path(), skill.location());
    }
    let long = "a".repeat(70);
    let (_temp, dir) = with_content(format!("---\nname: {long}\ndescription: d\n---\n"));
    assert_eq!(Skill::load(&dir, Mode::Lenient).unwrap().name().as_str(), long);
}

#[test]
fn without_description_or_readable_yaml_nothing_is_loaded() {
    check("---\nname: good\n---\n", Mode::Lenient, &[RuleId::DescriptionMissing]);
    check("---\nname: good\ndescription: ' '\n---\n", Mode::Lenient, &[RuleId::DescriptionEmpty]);
    check("---\nname: 'good\n- description: d\n---\n", Mode::Lenient, &[RuleId::FrontmatterSyntax]);
    check("---\n- name\n---\n", Mode::Lenient, &[RuleId::FrontmatterNotMapping]);
    check(
        "---\nname: a/b\ndescription: d\n---\n",
        Mode::Lenient,
        &[RuleId::NameUnsafe, RuleId::NameDirectoryMismatch],
    );
    check("# Title\n", Mode::Lenient, &[RuleId::FrontmatterMissing]);
    check("", Mode::Strict, &[RuleId::FrontmatterMissing]);
}

#[test]
fn a_byte_order_mark_is_an_error_or_skipped() {
    let marked = format!("\u{feff}\n\n{GOOD}").replace("name: good", "name: bad");
    check(&marked, Mode::Strict, &[RuleId::FrontmatterMissing]);
    let (_temp, dir) = with_content(&marked);
    let findings = validate(&dir, Mode::Lenient);
    assert_eq!(findings[0].rule(), RuleId::FrontmatterRepaired);
    assert_eq!(findings[1].position().unwrap().line, 4, "{}", findings[1]);
    assert_eq!(Skill::load(&dir, Mode::Lenient).unwrap().body().unwrap(), "# Body");
}

#[test]
fn invalid_utf8_is_an_error() {
    check(b"---\nname: good\ndescription: \xff\n---\n", Mode::Strict, &[RuleId::NotUtf8]);
    check(b"---\nname: good\ndescription: \xff\n---\n", Mode::Lenient, &[RuleId::NotUtf8]);
    let body = b"---\nname: good\ndescription: d\n---\n\xff";
    check(body, Mode::Strict, &[RuleId::NotUtf8]);
    check(body, Mode::Lenient, &[]);
    let (_temp, dir) = with_content(body);
    let error = Skill::load(&dir, Mode::Lenient).unwrap().body().unwrap_err();
    assert_eq!(error.kind(), SkillErrorKind::InvalidFrontmatter);
}

#[test]
fn missing_parts_have_the_references_messages() {
    let temp = tempfile::tempdir().unwrap();
    let message = |path: &Path| validate(path, Mode::Strict)[0].message().to_owned();
    let absent = temp.path().join("absent");
    assert_eq!(message(&absent), format!("Path does not exist: {}", absent.display()));
    assert_eq!(message(temp.path()), "Missing required file: SKILL.md");
    let file = temp.path().join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(message(&file), format!("Not a directory: {}", file.display()));
}

#[test]
fn a_skill_file_that_is_not_a_regular_file_is_rejected() {
    let (temp, dir) = with_content(GOOD);
    let file = dir.join("SKILL.md");
    let outside = temp.path().join("outside.md");
    fs::rename(&file, &outside).unwrap();
    let kind = || Skill::load(&dir, Mode::Lenient).unwrap_err().kind();

    symlink(&outside, &file).unwrap();
    assert_eq!(kind(), SkillErrorKind::PathNotAllowed);
    fs::remove_file(&file).unwrap();

    symlink("/dev/zero", &file).unwrap();
    assert_eq!(kind(), SkillErrorKind::PathNotAllowed);
    fs::remove_file(&file).unwrap();

    fs::create_dir(&file).unwrap();
    assert_eq!(kind(), SkillErrorKind::PathNotAllowed);
    fs::remove_dir(&file).unwrap();

    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RWXU).unwrap();
    assert_eq!(kind(), SkillErrorKind::PathNotAllowed);
    fs::remove_file(&file).unwrap();

    symlink("SKILL.md", &file).unwrap();
    assert_eq!(kind(), SkillErrorKind::PathNotAllowed);
    fs::remove_file(&file).unwrap();

    // Within the skill a link is fine, and `skill.md` is the second choice.
    fs::rename(&outside, dir.join("real.md")).unwrap();
    symlink("real.md", dir.join("skill.md")).unwrap();
    assert_eq!(Skill::load(&dir, Mode::Strict).unwrap().location(), dir.join("skill.md"));
}

#[test]
fn a_directory_may_be_given_by_a_link_or_relatively() {
    let (temp, dir) = with_content(GOOD.replace("name: good", "name: alias"));
    let link = temp.path().join("alias");
    symlink(&dir, &link).unwrap();
    let skill = Skill::load(&link, Mode::Strict).unwrap();
    assert_eq!(skill.root_dir(), dir);
    let dotted = dir.join("..").join("good").join(".");
    assert_eq!(Skill::load(dotted, Mode::Lenient).unwrap().root_dir(), dir);
}

#[test]
fn a_permission_error_is_reported() {
    let (_temp, dir) = with_content(GOOD);
    fs::set_permissions(dir.join("SKILL.md"), fs::Permissions::from_mode(0o000)).unwrap();
    match Skill::load(&dir, Mode::Strict) {
        Err(error) => assert_eq!(error.kind(), SkillErrorKind::PermissionDenied),
        // The superuser may read everything.
        Ok(skill) => assert_eq!(skill.name().as_str(), "good"),
    }
}

#[test]
fn a_body_with_hidden_text_is_reported_when_a_skill_is_validated() {
    let hidden = format!("{GOOD}Do it.\u{e0041}\u{202e}");
    for mode in [Mode::Strict, Mode::Lenient] {
        check(&hidden, mode, &[RuleId::BodyDeceptive]);
        check(GOOD.to_owned() + "\u{2764}\u{fe0f}", mode, &[]);
    }
}

//! `conjure skills …` on the fixtures and on invalid skills.

use std::path::Path;

use crate::support::{Conjure, Finished, fixture};

fn skills<'a>(args: impl IntoIterator<Item = &'a str>) -> Finished {
    let command = ["skills"].into_iter().chain(args);
    Conjure::new(command).finish()
}

/// A directory with a good skill, one without a description, and one whose name is not its directory's.
fn mixed() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("good", "---\nname: good\ndescription: Does good: really\n---\n# Good\n"),
        ("broken", "---\nname: broken\n---\n"),
        ("renamed", "---\nname: other\ndescription: Has another name\n---\n"),
    ] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        std::fs::write(dir.path().join(name).join("SKILL.md"), content).unwrap();
    }
    dir
}

/// The text without what differs from machine to machine.
fn normalized(text: &str, dir: &Path) -> String {
    let root = crate::support::root().to_string_lossy();
    let digest = text.split_whitespace().find(|word| word.starts_with("sha256:")).unwrap_or("sha256:");
    text.replace(digest, "[DIGEST]")
        .replace(&*dir.canonicalize().unwrap().to_string_lossy(), "[DIRECTORY]")
        .replace(&*dir.to_string_lossy(), "[DIRECTORY]")
        .replace(&*root, "[ROOT]")
}

#[test]
fn the_fixtures_are_listed() {
    let listed = skills(["list", "--skills", "fixtures/skills"]).code(0);
    insta::assert_snapshot!(listed.stdout);
    assert_eq!(listed.stderr, "");
}

#[test]
fn a_list_for_programs_names_every_skill() {
    let listed = skills(["list", "--skills", "fixtures/skills", "--format", "json"]).code(0);
    let list: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let names: Vec<&str> =
        list.as_array().unwrap().iter().map(|skill| skill["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["log-analyzer", "minimal-skill", "sales-report", "test-skill"]);
    for skill in list.as_array().unwrap() {
        assert!(Path::new(skill["location"].as_str().unwrap()).is_file());
    }
}

#[test]
fn a_broken_skill_is_reported_and_hides_no_other() {
    let dir = mixed();
    let listed = Conjure::new(["skills", "list", "--skills"]).arg(dir.path()).finish().code(0);
    insta::assert_snapshot!("mixed_stdout", listed.stdout);
    insta::assert_snapshot!("mixed_stderr", normalized(&listed.stderr, dir.path()));
}

#[test]
fn the_first_directory_wins_and_the_collision_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let own_dir = dir.path().join("minimal-skill");
    std::fs::create_dir(&own_dir).unwrap();
    std::fs::write(own_dir.join("SKILL.md"), "---\nname: minimal-skill\ndescription: Mine\n---\n").unwrap();
    let listed = Conjure::new(["skills", "list", "--skills"])
        .arg(dir.path())
        .arg("--skills")
        .arg(fixture("skills"))
        .finish()
        .code(0)
        .says("a skill `minimal-skill` was already found");
    assert!(listed.stdout.contains("minimal-skill  Mine"), "{}", listed.stdout);
}

#[test]
fn a_missing_directory_is_a_usage_error() {
    let missing = skills(["list", "--skills", "no/such/directory"]).code(2).says("hint: ");
    assert!(missing.stderr.contains("no/such/directory"), "{}", missing.stderr);
}

#[test]
fn an_untrusted_project_is_not_loaded_and_a_trusted_one_is() {
    let project = tempfile::tempdir().unwrap();
    let skill = project.path().join(".claude/skills/local-one");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "---\nname: local-one\ndescription: Of the project\n---\n")
        .unwrap();
    let list = || Conjure::new(["skills", "list"]).dir(project.path());
    let untrusted = list().finish().code(0).says("not trusted");
    assert!(!untrusted.stdout.contains("local-one"), "{}", untrusted.stdout);
    let trusted = list().env("CONJURE_TRUSTED_PROJECTS", project.path()).finish().code(0);
    assert!(trusted.stdout.contains("local-one"), "{}", trusted.stdout);
}

#[test]
fn a_valid_skill_is_reported_with_exit_code_0() {
    let valid =
        skills(["validate", "fixtures/skills/sales-report", "fixtures/skills/test-skill/SKILL.md"]).code(0);
    assert_eq!(
        valid.stdout,
        "Valid skill: fixtures/skills/sales-report\nValid skill: fixtures/skills/test-skill/SKILL.md\n"
    );
    assert_eq!(valid.stderr, "");
}

#[test]
fn findings_use_the_references_wording_and_exit_code_1() {
    let dir = mixed();
    let invalid = Conjure::new(["skills", "validate"])
        .arg(dir.path().join("renamed"))
        .arg(dir.path().join("broken"))
        .finish()
        .code(1);
    assert_eq!(invalid.stdout, "");
    insta::assert_snapshot!("validate_stderr", normalized(&invalid.stderr, dir.path()));
}

#[test]
fn lenient_validation_accepts_loadable_skills_with_warnings() {
    let dir = mixed();
    let renamed = dir.path().join("renamed");
    let lenient = Conjure::new(["skills", "validate", "--lenient"]).arg(&renamed).finish().code(0);
    assert!(lenient.stderr.starts_with("warning: "), "{}", lenient.stderr);
    Conjure::new(["skills", "validate", "--lenient", "--strict"]).arg(&renamed).finish().code(2);
}

#[test]
fn json_validation_has_rules_and_locations() {
    let dir = mixed();
    let report = Conjure::new(["skills", "validate", "--format", "json"])
        .arg(dir.path().join("renamed"))
        .finish()
        .code(1);
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(report[0]["valid"], false);
    let finding = &report[0]["findings"][0];
    assert_eq!(finding["rule"], "name-directory-mismatch");
    assert_eq!(finding["severity"], "error");
    assert_eq!(finding["line"], 2);
}

#[test]
fn a_missing_path_has_exit_code_2() {
    skills(["validate", "no/such/skill"]).code(2);
    skills(["validate"]).code(2);
    skills(["properties", "no/such/skill"]).code(2).says("no/such/skill");
}

#[test]
fn an_existing_invalid_skill_has_exit_code_1() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let skill = dir.path().join(name);
        std::fs::create_dir(&skill).unwrap();
        skill.join("SKILL.md")
    };
    drop(make("empty"));
    rustix::fs::mkfifoat(rustix::fs::CWD, make("pipe"), rustix::fs::Mode::RUSR).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", make("leads-out")).unwrap();
    std::fs::write(make("broken"), "no frontmatter").unwrap();
    std::fs::write(dir.path().join("plain"), "").unwrap();
    for name in ["empty", "pipe", "leads-out", "broken", "plain"] {
        let path = dir.path().join(name);
        for command in ["properties", "prompt", "inspect", "validate"] {
            skills([command, path.to_str().unwrap()]).code(1);
        }
    }
    for name in ["nothing", "nothing.skill"] {
        let path = dir.path().join(name);
        for command in ["properties", "prompt", "inspect"] {
            skills([command, path.to_str().unwrap()]).code(2).says(name);
        }
    }
}

/// The reference prints what it does not call valid, as long as there is a name and a description.
#[test]
fn invalid_properties_are_printed_as_by_the_reference_with_the_finding() {
    let dir = tempfile::tempdir().unwrap();
    let skill = dir.path().join("directory");
    std::fs::create_dir(&skill).unwrap();
    let write = |text: &str| std::fs::write(skill.join("SKILL.md"), text).unwrap();
    write("---\nname: Not_Valid\ndescription: Prints.\nauthor: me\n---\n");
    let path = skill.to_str().unwrap();
    let properties = skills(["properties", path]).code(0);
    assert_eq!(properties.stdout, "{\n  \"name\": \"Not_Valid\",\n  \"description\": \"Prints.\"\n}\n");
    let properties = properties.says("must be lowercase").says("[unknown-field]");
    properties.says("must match skill name");
    let prompt = skills(["prompt", path]).code(0).says("must be lowercase");
    assert!(prompt.stdout.contains("<name>\nNot_Valid\n</name>"), "{}", prompt.stdout);
    skills(["validate", path]).code(1);
    for refused in ["---\nname: x\n---\n", "---\ndescription: x\n---\n", "---\n- x\n---\n", "text"] {
        write(refused);
        for command in ["properties", "prompt"] {
            let refused = skills([command, path]).code(1);
            assert_eq!(refused.stdout, "", "{refused:?}");
        }
    }
}

#[test]
fn properties_are_json_in_the_order_of_the_reference() {
    insta::assert_snapshot!(skills(["properties", "fixtures/skills/sales-report"]).code(0).stdout);
}

#[test]
fn the_prompt_is_the_block_of_the_reference() {
    let prompt = skills(["prompt", "fixtures/skills/minimal-skill", "fixtures/skills/test-skill"]).code(0);
    insta::assert_snapshot!(normalized(&prompt.stdout, &fixture("skills")));
}

#[test]
fn inspect_shows_everything_about_a_skill() {
    let show_output = skills(["inspect", "fixtures/skills/minimal-skill"]).code(0).stdout;
    insta::assert_snapshot!(normalized(&show_output, &fixture("skills")));
    let json = skills(["inspect", "fixtures/skills/sales-report", "--format", "json"]).code(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["resources"]["scripts"][0]["path"], "scripts/growth.py");
    assert!(json["digest"].as_str().unwrap().starts_with("sha256:"));
    assert!(json["body"]["bytes"].as_u64().unwrap() > 100);
}

#[test]
fn a_description_cannot_move_the_cursor() {
    let dir = tempfile::tempdir().unwrap();
    let skill = dir.path().join("sly");
    std::fs::create_dir(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "---\nname: sly\ndescription: \"a\\e[2Jb\"\n---\n").unwrap();
    let listed = Conjure::new(["skills", "list", "--skills"]).arg(dir.path()).finish().code(0);
    assert!(!listed.stdout.contains('\x1b') && listed.stdout.contains("sly"), "{:?}", listed.stdout);
}

#[test]
fn a_packaged_skill_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let packed = skills(["pack", "fixtures/skills/sales-report", "-o", dir.path().to_str().unwrap()]).code(0);
    let package = packed.stdout.trim();
    assert_eq!(Path::new(package), dir.path().join("sales-report.skill"));
    assert!(packed.stderr.contains("sales-report: "), "{}", packed.stderr);
    assert!(skills(["validate", package]).code(0).stdout.starts_with("Valid skill: "));
    let properties = |path: &str| skills(["properties", path]).code(0).stdout;
    assert_eq!(properties(package), properties("fixtures/skills/sales-report"));
    let listed = skills(["list", "--skills", dir.path().to_str().unwrap()]).code(0);
    assert!(listed.stdout.starts_with("sales-report "), "{}", listed.stdout);
    let skill = conjure::skill::load_skill_file(package).unwrap();
    assert!(conjure::skill::load_body(&skill).unwrap().contains("# Sales report"));
}

#[test]
fn a_packages_private_directory_is_never_printed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    skills(["pack", "fixtures/skills/minimal-skill", "-o", root.to_str().unwrap()]).code(0);
    let package = root.join("minimal-skill.skill");
    // By a relative path, and with something to find.
    let content = "---\nname: sly\ndescription: Use when: asked\n---\n";
    let sly = root.join("sly");
    std::fs::create_dir(&sly).unwrap();
    std::fs::write(sly.join("SKILL.md"), content).unwrap();
    let run = |args: &[&str]| {
        let done = Conjure::new([&["skills"], args].concat()).dir(&root).finish();
        let message = format!("{}{}", done.stdout, done.stderr);
        assert!(!message.contains("conjure-skill-"), "{args:?}: {message}");
        done
    };
    let listed = run(&["list", "--skills", ".", "--format", "json"]).code(0);
    let list: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(list[0]["location"], package.to_str().unwrap());
    assert_eq!(list[1]["location"], sly.join("SKILL.md").to_str().unwrap());
    let name = "minimal-skill.skill";
    let show_output = run(&["inspect", name, "--format", "json"]).code(0);
    let show_output: serde_json::Value = serde_json::from_str(&show_output.stdout).unwrap();
    assert_eq!(show_output["location"], package.to_str().unwrap());
    assert!(run(&["inspect", name]).code(0).stdout.contains(package.to_str().unwrap()));
    let prompt = run(&["prompt", name]).code(0);
    assert!(prompt.stdout.contains(&format!("<location>\n{}\n</location>", package.display())), "{prompt:?}");
    run(&["properties", name]).code(0);
    run(&["validate", name, "--format", "json"]).code(0);
    std::fs::write(root.join("broken.skill"), package_of(content)).unwrap();
    for command in ["validate", "properties", "prompt"] {
        run(&[command, "broken.skill"]).code(1);
    }
    let report = run(&["validate", "broken.skill", "--format", "json"]).code(1).stdout;
    assert!(report.contains("\"broken.skill/SKILL.md\""), "{report}");
}

/// A package with a `SKILL.md` of this content at its root, not compressed, that no packer of ours would write.
fn package_of(content: &str) -> Vec<u8> {
    const NAME: &[u8] = b"SKILL.md";
    let crc = !content.bytes().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 })
    });
    let size = u32::try_from(content.len()).unwrap().to_le_bytes();
    // The version, no flags, not compressed, the first moment, checksum, sizes, length of the name, no extra fields.
    let fields =
        [&[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0], &crc.to_le_bytes()[..], &size, &size, &[8, 0, 0, 0]].concat();
    let local = [b"PK\x03\x04", &fields[..], NAME, content.as_bytes()].concat();
    let central = [b"PK\x01\x02\x14\0", &fields[..], &[0; 14], NAME].concat();
    let lengths = [central.len(), local.len()].map(|length| u32::try_from(length).unwrap().to_le_bytes());
    let end = [b"PK\x05\x06\0\0\0\0\x01\0\x01\0", &lengths.concat()[..], &[0, 0]].concat();
    [local, central, end].concat()
}

#[test]
fn an_invalid_package_is_rejected_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("broken.skill");
    std::fs::write(&path, "not a package").unwrap();
    let path = path.to_str().unwrap();
    for command in ["validate", "properties", "inspect", "prompt"] {
        let refused = skills([command, path]).code(1);
        assert!(refused.stderr.contains("broken.skill"), "{}", refused.stderr);
    }
    let error = conjure::skill::load_skill_file(path).unwrap_err();
    assert_eq!(error.kind(), conjure::ErrorKind::InvalidSkillStructure);
    // Files are not packed, and a missing directory creates no output.
    skills(["pack", path, "-o", dir.path().to_str().unwrap()]).code(1);
    skills(["pack", "no-such-skill", "-o", dir.path().to_str().unwrap()]).code(2);
    // An existing target that is not a regular file is not replaced.
    let device = dir.path().join("device");
    std::os::unix::fs::symlink("/dev/null", &device).unwrap();
    let device = device.to_str().unwrap();
    let refused = skills(["pack", "fixtures/skills/minimal-skill", "-o", device]).code(1);
    assert!(
        refused.stderr.contains(device) && refused.stderr.contains("only a regular file is replaced"),
        "{}",
        refused.stderr
    );
    std::fs::remove_file(device).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

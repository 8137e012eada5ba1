//! `conjure skills check`, and the findings of `conjure skills validate` about manifests.

use crate::support::{Conjure, Finished};

fn skills<'a>(args: impl IntoIterator<Item = &'a str>) -> Finished {
    let command = ["skills"].into_iter().chain(args);
    Conjure::new(command).finish()
}

#[test]
fn one_report_lists_everything_missing() {
    let report = skills(["check", "fixtures/manifests/sidecar/deploy", "--sandbox", "local"]).code(1);
    insta::assert_snapshot!(report.stdout);
    assert_eq!(report.stderr, "");
}

#[test]
fn a_skill_with_everything_is_ready() {
    let args =
        ["check", "fixtures/manifests/sidecar/greeter", "--sandbox", "local", "--input", "username=Ada"];
    insta::assert_snapshot!(skills(args).code(0).stdout);
    let simple =
        skills(["check", "fixtures/manifests/frontmatter/simple-skill", "--sandbox", "local"]).code(0);
    insta::assert_snapshot!("simple", simple.stdout);
}

#[test]
fn values_are_checked_and_sensitive_ones_hidden() {
    let worklog =
        ["check", "fixtures/manifests/frontmatter/worklog", "--sandbox", "local", "--format", "json"];
    let args = worklog.into_iter().chain(["--input", "session_date=today", "--input", "api_key=hunter2"]);
    let report = skills(args).code(1).stdout;
    assert!(!report.contains("hunter2"), "{report}");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["skill"], &report["ready"]), (&"worklog".into(), &false.into()));
    let rules = report["rules"].as_array().unwrap();
    assert_eq!(rules.len(), 8);
    assert_eq!((&rules[3]["rule"], &rules[3]["outcome"]), (&"input-schemas".into(), &"failed".into()));
    assert_eq!(rules[3]["findings"][0]["subject"], "session_date");
}

#[test]
fn missing_or_unreadable_skills_are_reported() {
    let absent = skills(["check", "fixtures/manifests/absent"]).code(2);
    insta::assert_snapshot!(absent.stdout);
    let dir = tempfile::tempdir().unwrap();
    let skill = dir.path().join("a");
    std::fs::create_dir(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "---\nname: a\ndescription: d\n---\n").unwrap();
    std::fs::write(skill.join("skill.manifest.yaml"), "manifest_version: \"2.0\"\n").unwrap();
    let newer = Conjure::new(["skills", "check"]).arg(&skill).finish().code(1);
    assert!(newer.stdout.contains("manifest_version 2.0 is not supported"), "{}", newer.stdout);
    let validated = Conjure::new(["skills", "validate"]).arg(&skill).finish().code(1);
    assert!(validated.stderr.contains("manifest_version 2.0 is not supported"), "{}", validated.stderr);
}

#[test]
fn a_manifest_in_the_fields_is_valid_only_leniently() {
    let path = "fixtures/manifests/frontmatter/worklog";
    let strict = skills(["validate", path]).code(1);
    insta::assert_snapshot!(strict.stderr);
    skills(["validate", "--lenient", path]).code(0);
    skills(["validate", "fixtures/manifests/sidecar/worklog"]).code(0);
}

#[test]
fn inputs_are_written_as_name_and_value() {
    for bad in ["username", "=x"] {
        let args = ["check", "fixtures/manifests/sidecar/greeter", "--input", bad];
        assert!(skills(args).code(2).stderr.contains("an input is NAME=VALUE"));
    }
    let twice = ["--input", "username=a", "--input", "username=b"];
    let args = ["check", "fixtures/manifests/sidecar/greeter", "--sandbox", "local"].into_iter().chain(twice);
    assert!(skills(args).code(2).stderr.contains("is there twice"));
}

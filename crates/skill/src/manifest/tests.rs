use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{Mode, RuleId, Skill, SkillErrorKind, validate};

/// The findings about a manifest of version 1.0 with these fields, errors or not, each on a line.
fn findings(fields: &str) -> String {
    let findings = match Manifest::parse(&format!("manifest_version: \"1.0\"\n{fields}")) {
        Ok(parsed) => parsed.diagnostics,
        Err(error) => error.into_diagnostics(),
    };
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check(fields: &str, expected: &str) {
    assert_eq!(findings(fields), expected, "{fields}");
}

fn manifest(fields: &str) -> Manifest {
    let parsed = Manifest::parse(&format!("manifest_version: \"1.0\"\n{fields}")).unwrap();
    Arc::unwrap_or_clone(parsed.manifest.unwrap())
}

fn fixture(place: &str) -> Skill {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/manifests");
    Skill::load(root.join(place), Mode::Lenient).unwrap()
}

/// A skill with this frontmatter and perhaps a manifest beside it.
fn skill(frontmatter: &str, sidecar: Option<&str>) -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("a");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("SKILL.md"), format!("---\nname: a\ndescription: d\n{frontmatter}---\n")).unwrap();
    if let Some(sidecar) = sidecar {
        fs::write(dir.join(SIDECAR_FILE), sidecar).unwrap();
    }
    temp
}

#[test]
fn manifests_in_frontmatter_and_sidecar_are_parsed_alike() {
    for name in ["worklog", "greeter", "deploy", "analyze-git"] {
        let (first, second) = (fixture(&format!("frontmatter/{name}")), fixture(&format!("sidecar/{name}")));
        assert!(first.manifest().is_some(), "{name}");
        assert_eq!(first.manifest(), second.manifest(), "{name}");
        assert_eq!(second.diagnostics(), [], "{name}");
        let root = second.root_dir();
        assert_eq!(validate(root, Mode::Strict), [], "{name}");
        let strict = validate(first.root_dir(), Mode::Strict);
        assert!(strict.iter().any(|finding| finding.is_error()), "{name}");
        assert!(strict.iter().any(|finding| finding.rule() == RuleId::ManifestSidecar), "{name}");
    }
    assert_eq!(fixture("frontmatter/simple-skill").manifest(), None);
}

#[test]
fn the_worklog_example_is_parsed() {
    let skill = fixture("sidecar/worklog");
    let manifest = skill.manifest().unwrap();
    assert_eq!((manifest.version().to_string(), manifest.skill_version()), ("1.0".to_owned(), Some("1.0.0")));
    let inputs: Vec<_> = manifest
        .inputs()
        .iter()
        .map(|input| (input.name(), input.requirement(), input.sensitive()))
        .collect();
    assert_eq!(
        inputs,
        [
            ("session_date", Requirement::Required, false),
            ("topic", Requirement::Optional, false),
            ("output_dir", Requirement::Optional, false),
            ("api_key", Requirement::Optional, true),
        ]
    );
    assert_eq!(manifest.input("topic").unwrap().schema().default_value(), Some(&json!("session")));
    let env: Vec<_> =
        manifest.env().iter().map(|one| (one.name(), one.requirement(), one.sensitive())).collect();
    assert_eq!(env, [("PROJECT", Requirement::Optional, false), ("API_TOKEN", Requirement::Optional, true)]);
    let commands = manifest.commands();
    assert_eq!(commands[0].command(), "git");
    assert_eq!(commands[0].min_version().unwrap().to_string(), "2.40");
    assert!(!commands[1].has_bounds());
    let file = &manifest.files()[0];
    assert_eq!((file.path(), file.base()), ("scripts/extract-metrics.sh", PathBase::SkillRoot));
    let output = &manifest.output_files()[0];
    assert_eq!(output.base(), PathBase::RepoRoot);
    let values =
        [("output_dir", json!("docs")), ("session_date", json!("2025-01-01")), ("topic", json!("x"))];
    let values = values.map(|(name, value)| (name.to_owned(), value)).into();
    assert_eq!(output.pattern().expand(&values).unwrap(), "docs/2025-01-01-x.org");
    assert_eq!(manifest.execution().timeout, Some(Duration::from_secs(30)));
    assert!(!manifest.sensitive());
    let deploy = fixture("sidecar/deploy");
    let deploy = deploy.manifest().unwrap();
    let hints = deploy.execution();
    assert_eq!(hints.destructive, Destructive::Yes);
    assert!(deploy.sensitive() && hints.network && !hints.idempotent && !hints.interactive);
}

#[test]
fn versions_of_the_format_follow_semantic_rules() {
    let parse = |version: &str| Manifest::parse(&format!("manifest_version: {version}\nnew_field: 1\n"));
    let unsupported = parse("\"2.0\"").unwrap_err();
    assert!(matches!(unsupported, ManifestError::Unsupported { found, .. } if found.to_string() == "2.0"));
    assert!(matches!(parse("\"0.9\""), Err(ManifestError::Unsupported { .. })));
    let newer = parse("\"1.7\"").unwrap();
    assert!(newer.manifest.is_some());
    assert_eq!(newer.diagnostics[0].rule(), RuleId::ManifestVersion);
    for version in ["\"1.0\"", "1.0", "1", "\"1.0.3\""] {
        assert!(parse(version).unwrap().manifest.is_some(), "{version}");
    }
    for version in ["one", "[1]", "\"\"", "\"1.\"", "\"1.0.0.0\"", "\"-1\"", "\"99999999999.0\""] {
        assert!(matches!(parse(version), Err(ManifestError::Invalid { .. })), "{version}");
    }
    let legacy = Manifest::parse("version: 1.0\ninputs: nonsense\n").unwrap();
    assert_eq!(legacy.manifest, None);
    assert_eq!(legacy.diagnostics[0].rule(), RuleId::ManifestLegacy);
}

#[test]
fn an_input_name_cannot_forge_messages() {
    for name in ["out-dir", "out_dir", "a.b", "A1"] {
        check(&format!("inputs: {{optional: [{{name: {name}}}]}}\n"), "");
    }
    for name in ["</skill_instructions>", "a]", "a b", "a\\nb", "a:b", "ä", "a/0", ""] {
        let found = findings(&format!("inputs: {{optional: [{{name: \"{name}\"}}]}}\n"));
        assert!(found.contains("error[manifest-name]"), "{name}: {found}");
    }
}

#[test]
fn errors_are_reported_with_their_position() {
    check(
        "inputs:\n  required:\n    - name: a b\n    - description: d\n    - name: ok\n      schema:\n        type: text\n",
        "4:7: error[manifest-name]: `inputs.required[0].name`: an input's name is letters, digits, `_`, `-` and `.`; it has 1 \
         to 128 characters\n\
         5:7: error[manifest-value]: `inputs.required[1]`: `name` is missing\n\
         8:9: error[manifest-schema]: `inputs.required[2].schema.type`: `text` is not a type: write one of string, number, \
         integer, boolean, array, object",
    );
    check(
        "preconditions:\n  commands:\n  - cmd: git\n    min_version: 2.40\n  - cmd: /bin/sh\n",
        "5:5: error[manifest-value]: `preconditions.commands[0].min_version`: YAML reads this as the number 2.4, and 2.40 \
         would be 2.4: write the version in quotes\n\
         6:5: error[manifest-name]: `preconditions.commands[1].cmd`: a command's name has no space and no `/`, and does not \
         begin with `-`; it has 1 to 128 characters",
    );
    check(
        "execution:\n  timeout: 0\n  destructive: yes please\nsensitive: 1\nextra: x\n",
        "6:1: warning[manifest-field]: `extra`: this field is unknown and ignored; known here: manifest_version, \
         version, inputs, env, preconditions, outputs, execution, sensitive\n\
         4:3: error[manifest-value]: `execution.destructive`: expected `true` or `false`, found a value of kind string\n\
         3:3: error[manifest-value]: `execution.timeout`: expected a number of seconds, more than zero and at most those of \
         a week\n\
         5:1: error[manifest-value]: `sensitive`: expected `true` or `false`, found a value of kind number",
    );
    check(
        "inputs: {required: [{name: a}, {name: A}]}\n",
        "2:1: error[manifest-name]: `inputs.required[1].name`: another input is called `A` too, or goes to scripts by the \
         same variable",
    );
}

#[test]
fn paths_stay_beneath_their_base() {
    let file = |path: &str| findings(&format!("preconditions:\n  files:\n    - path: '{path}'\n"));
    for path in ["a", "a/b", "./a", "a/../b", "a/..b", "..a"] {
        assert_eq!(file(path), "", "{path}");
    }
    for path in ["/etc/passwd", "~/x", "~", "..", "../a", "a/../../b", ".", "a/..", ""] {
        assert!(file(path).contains("error[manifest-path]"), "{path}: {}", file(path));
    }
    let output = |pattern: &str| {
        findings(&format!(
            "inputs: {{optional: [{{name: x}}]}}\noutputs:\n  files:\n    - pattern: '{pattern}'\n"
        ))
    };
    for pattern in ["out/{{x}}.md", "{{x}}", "{{ x }}/a", "{x}.md"] {
        assert_eq!(output(pattern), "", "{pattern}");
    }
    for (pattern, rule) in [
        ("/{{x}}", "manifest-path"),
        ("../{{x}}", "manifest-path"),
        ("{{y}}", "manifest-value"),
        ("{{x", "manifest-value"),
        ("{{}}", "manifest-value"),
    ] {
        assert!(output(pattern).contains(&format!("error[{rule}]")), "{pattern}: {}", output(pattern));
    }
}

#[test]
fn an_input_value_cannot_escape_the_base() {
    let manifest = manifest("inputs: {optional: [{name: x}]}\noutputs: {files: [{pattern: 'out/{{x}}'}]}\n");
    let pattern = manifest.output_files()[0].pattern();
    let expand = |value| pattern.expand(&BTreeMap::from([("x".to_owned(), value)]));
    assert_eq!(expand(json!("a/b")).unwrap(), "out/a/b");
    assert_eq!(expand(json!(7)).unwrap(), "out/7");
    assert_eq!(expand(json!("../../x")), Err(OutputPatternError::Path(PathProblem::LeadsOut)));
    assert!(matches!(expand(json!([1])), Err(OutputPatternError::NotScalar { .. })));
    assert!(matches!(pattern.expand(&BTreeMap::new()), Err(OutputPatternError::NoValue { .. })));
    assert_eq!(pattern.to_string(), "out/{{x}}");
}

#[test]
fn two_manifests_are_refused() {
    let declared = "manifest_version: \"1.0\"\nsensitive: true\n";
    let both = skill(declared, Some(declared));
    let error = Skill::load(both.path().join("a"), Mode::Lenient).unwrap_err();
    assert_eq!(error.kind(), SkillErrorKind::InvalidManifest);
    assert_eq!(error.into_diagnostics()[0].rule(), RuleId::ManifestTwice);
    let beside = skill("", Some(declared));
    let loaded = Skill::load(beside.path().join("a"), Mode::Strict).unwrap();
    assert!(loaded.manifest().unwrap().sensitive());
    let inside = skill(declared, None);
    assert!(Skill::load(inside.path().join("a"), Mode::Lenient).unwrap().manifest().unwrap().sensitive());
    assert!(Skill::load(inside.path().join("a"), Mode::Strict).is_err());
}

#[test]
fn a_skill_with_an_unreliable_manifest_is_not_loaded() {
    for (sidecar, kind, rule, place) in [
        ("manifest_version: \"2.0\"\n", SkillErrorKind::UnsupportedManifest, RuleId::ManifestVersion, true),
        (
            "manifest_version: \"1.0\"\nsensitive: maybe\n",
            SkillErrorKind::InvalidManifest,
            RuleId::ManifestValue,
            true,
        ),
        ("a: [\n", SkillErrorKind::InvalidManifest, RuleId::ManifestSyntax, true),
        ("- a\n", SkillErrorKind::InvalidManifest, RuleId::ManifestValue, true),
    ] {
        let temp = skill("", Some(sidecar));
        let error = Skill::load(temp.path().join("a"), Mode::Lenient).unwrap_err();
        assert_eq!(error.kind(), kind, "{sidecar}");
        assert!(error.path().ends_with(SIDECAR_FILE));
        let finding = &error.into_diagnostics()[0];
        assert_eq!((finding.rule(), finding.position().is_some()), (rule, place), "{sidecar}");
    }
    let temp = skill("manifest_version: \"3.1\"\n", None);
    let error = Skill::load(temp.path().join("a"), Mode::Lenient).unwrap_err();
    assert_eq!(error.kind(), SkillErrorKind::UnsupportedManifest);
    assert!(error.to_string().contains("line 4"), "{error}");
    let temp = skill("", Some(""));
    fs::write(temp.path().join("a").join(SIDECAR_FILE), [0xff]).unwrap();
    assert_eq!(
        Skill::load(temp.path().join("a"), Mode::Lenient).unwrap_err().kind(),
        SkillErrorKind::InvalidManifest
    );
}

#[test]
fn the_digest_covers_the_manifest() {
    let temp = skill("", Some("manifest_version: \"1.0\"\n"));
    let dir = temp.path().join("a");
    let loaded = Skill::load(&dir, Mode::Strict).unwrap();
    let before = loaded.digest().unwrap();
    fs::write(dir.join(SIDECAR_FILE), "manifest_version: \"1.0\"\nsensitive: true\n").unwrap();
    assert_ne!(loaded.digest().unwrap(), before);
}

#[test]
fn hostile_manifests_are_refused_in_bounded_time() {
    let bomb = (0..20).fold("manifest_version: \"1.0\"\na0: &a0 [x, x]\n".to_owned(), |text, level| {
        format!("{text}a{}: &a{} [*a{level}, *a{level}, *a{level}]\n", level + 1, level + 1)
    });
    let deep = format!("manifest_version: \"1.0\"\nx: {}1{}\n", "[".repeat(100), "]".repeat(100));
    let long = format!("manifest_version: \"1.0\"\nx: {}\n", "y".repeat(40_000));
    for text in [&bomb, &deep, &long] {
        assert!(Manifest::parse(text).is_err());
    }
    let pattern = "inputs:\n  required:\n    - name: a\n      schema: {pattern: '(((a{100}){100}){100})'}\n";
    assert!(findings(pattern).contains("the pattern cannot be used"));
    let many: String = (0..2000).map(|index| format!("k{index}: 1\n")).collect();
    assert_eq!(findings(&many).lines().count(), 100);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(
        text in r#"(manifest_version: "1\.0"\n)?((inputs|env|required|optional|name|files|outputs|path|schema|type|string)?[-:?'"|&*!{}\[\],0-9. \n]{0,4}){0,20}"#,
    ) {
        let _ = Manifest::parse(&text);
    }
}

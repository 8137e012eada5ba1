//! Each rule with what passes and what fails, over a machine that is described by a table.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::json;

use super::*;
use crate::manifest::PathBase;
use crate::{Mode, SIDECAR_FILE, Severity, Skill};

/// A machine: its commands with what they say, its files and its variables.
#[derive(Debug, Clone)]
struct Machine {
    commands: BTreeMap<&'static str, &'static str>,
    files: BTreeSet<(PathBase, &'static str)>,
    variables: BTreeSet<&'static str>,
    network: Network,
    fails: bool,
}

impl Machine {
    fn complete() -> Self {
        Self {
            commands: [("git", "git version 2.47.3"), ("date", ""), ("odd", "no version at all")].into(),
            files: [(PathBase::SkillRoot, "scripts/run.sh"), (PathBase::RepoRoot, "Cargo.toml")].into(),
            variables: ["TOKEN"].into(),
            network: Network::Reachable,
            fails: false,
        }
    }

    fn answer<'a, T: Send + 'a>(&self, answer: T) -> ProbeFuture<'a, T> {
        let answer = if self.fails {
            Err(ProbeError { message: "the sandbox is gone".to_owned() })
        } else {
            Ok(answer)
        };
        Box::pin(std::future::ready(answer))
    }
}

impl Probe for Machine {
    fn command<'a>(&'a self, name: &'a str, query: VersionQuery) -> ProbeFuture<'a, CommandProbe> {
        self.answer(match (self.commands.get(name), query) {
            (None, _) => CommandProbe::NotFound,
            (Some(version_output), VersionQuery::Yes) => {
                CommandProbe::Found { version_output: (*version_output).to_owned() }
            }
            (Some(_), VersionQuery::No) => CommandProbe::Found { version_output: String::new() },
        })
    }

    fn file<'a>(&'a self, base: PathBase, path: &'a str) -> ProbeFuture<'a, bool> {
        self.answer(self.files.contains(&(base, path)))
    }

    fn variable<'a>(&'a self, name: &'a str) -> ProbeFuture<'a, bool> {
        self.answer(self.variables.contains(name))
    }

    fn network(&self) -> Network {
        self.network
    }
}

const MANIFEST: &str = r#"
manifest_version: "1.0"
inputs:
  required:
    - name: day
      description: The day
      schema: {type: string, pattern: '^\d{4}$'}
    - name: key
      sensitive: true
      schema: {type: string, enum: [right]}
  optional:
    - name: count
      schema: {type: integer, minimum: 1, default: 3}
    - name: note
env:
  required: [{name: TOKEN, sensitive: true, description: Of the service}]
  optional: [{name: PROJECT}]
preconditions:
  commands: [{cmd: git, min_version: "2.40", max_version: "3"}, {cmd: date}]
  files: [{path: scripts/run.sh}, {path: Cargo.toml, base: repo_root}]
execution: {network: true}
"#;

fn skill(manifest: Option<&str>) -> (tempfile::TempDir, Skill) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("a");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("SKILL.md"), "---\nname: a\ndescription: d\n---\n").unwrap();
    if let Some(manifest) = manifest {
        fs::write(dir.join(SIDECAR_FILE), manifest).unwrap();
    }
    let skill = Skill::load(&dir, Mode::Strict).unwrap();
    (temp, skill)
}

fn inputs(values: serde_json::Value) -> Inputs {
    serde_json::from_value(values).unwrap()
}

fn valid_inputs() -> Inputs {
    inputs(json!({"day": "2025", "key": "right", "count": 1, "note": null}))
}

/// Runs a future that waits for nothing.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the machine of these tests answers at once"),
    }
}

fn report(manifest: &str, inputs: &Inputs, machine: &Machine) -> PreflightReport {
    let (_temp, skill) = skill(Some(manifest));
    now(Preflight::new(&skill, inputs).run(machine))
}

/// The rules that did not pass, with their findings.
fn reported(report: &PreflightReport) -> Vec<(PreflightRule, Vec<String>)> {
    let rules = report
        .rules()
        .iter()
        .filter(|rule| matches!(rule.outcome, RuleOutcome::Failed | RuleOutcome::Warned));
    let findings = |rule: &RuleReport| {
        let findings = rule.findings.iter().filter(|finding| finding.severity != Severity::Info);
        findings.map(ToString::to_string).collect()
    };
    rules.map(|rule| (rule.rule, findings(rule))).collect()
}

#[track_caller]
fn check(inputs: &Inputs, machine: &Machine, rule: PreflightRule, expected: &[&str]) {
    let report = report(MANIFEST, inputs, machine);
    let expected = vec![(rule, expected.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())];
    assert_eq!(reported(&report), expected);
    let failed = report.rules().iter().any(|rule| rule.outcome == RuleOutcome::Failed);
    assert_eq!(report.is_ready(), !failed);
}

#[test]
fn all_rules_pass_in_order_if_nothing_is_missing() {
    let report = report(MANIFEST, &valid_inputs(), &Machine::complete());
    assert_eq!(reported(&report), []);
    assert!(report.is_ready());
    let rules: Vec<_> = report.rules().iter().map(|rule| rule.rule).collect();
    assert_eq!(rules, PreflightRule::ALL);
    let redacted: Vec<_> = report.rules()[7].findings.iter().map(|finding| &*finding.subject).collect();
    assert_eq!(redacted, ["key", "TOKEN"]);
}

#[test]
fn a_missing_or_unreadable_skill_fails_the_first_rule() {
    let temp = tempfile::tempdir().unwrap();
    let error = Skill::load(temp.path().join("absent"), Mode::Lenient).unwrap_err();
    let report = PreflightReport::refused("absent", error);
    assert!(!report.is_ready());
    assert_eq!(report.rules()[0].outcome, RuleOutcome::Failed);
    assert!(report.rules()[1..].iter().all(|rule| rule.outcome == RuleOutcome::Skipped));
}

#[test]
fn an_unsupported_manifest_fails_the_second_rule_and_a_newer_one_warns() {
    let (temp, _) = skill(None);
    let dir = temp.path().join("a");
    fs::write(dir.join(SIDECAR_FILE), "manifest_version: \"2.0\"\n").unwrap();
    let report = PreflightReport::refused("a", Skill::load(&dir, Mode::Lenient).unwrap_err());
    let outcomes: Vec<_> = report.rules().iter().map(|rule| rule.outcome).collect();
    assert_eq!(outcomes[..3], [RuleOutcome::Passed, RuleOutcome::Failed, RuleOutcome::Skipped]);
    assert!(report.rules()[1].findings[0].message.contains("manifest_version 2.0 is not supported"));
    fs::write(dir.join(SIDECAR_FILE), "manifest_version: \"1.9\"\n").unwrap();
    let newer = Skill::load(&dir, Mode::Lenient).unwrap();
    let report = now(Preflight::new(&newer, &Inputs::new()).run(&Machine::complete()));
    assert_eq!(report.rules()[1].outcome, RuleOutcome::Warned);
    assert!(report.is_ready());
}

#[test]
fn a_required_input_without_a_value_fails_the_third_rule() {
    let provided = inputs(json!({"count": 1, "note": "", "key": "right", "dya": "x"}));
    check(
        &provided,
        &Machine::complete(),
        PreflightRule::RequiredInputs,
        &[
            "error: the input `day` is required and was not given: The day",
            "error: the skill has no input `dya`; it has `day`, `key`, `count`, `note`",
        ],
    );
}

#[test]
fn a_value_that_violates_its_schema_fails_the_fourth_rule() {
    let provided = inputs(json!({"day": "20255", "key": "hunter2", "count": 0, "note": 1}));
    let expected = [
        "error: the input `day` is not as the skill asks: expected a text that matches `^\\d{4}$`, found \"20255\"",
        "error: the input `key` is not as the skill asks: expected one of \"right\", found a string",
        "error: the input `count` is not as the skill asks: expected a number of at least 1, found 0",
    ];
    check(&provided, &Machine::complete(), PreflightRule::InputSchemas, &expected);
    let complete = serde_json::to_string(&report(MANIFEST, &provided, &Machine::complete())).unwrap();
    assert!(!complete.contains("hunter2"), "{complete}");
}

#[test]
fn commands_files_and_the_network_are_the_fifth_rule() {
    let mut incomplete = Machine::complete();
    incomplete.commands = [("git", "git version 2.39.5 (Apple Git-154)")].into();
    incomplete.files.clear();
    incomplete.network = Network::None;
    check(
        &valid_inputs(),
        &incomplete,
        PreflightRule::Preconditions,
        &[
            "error: the command `git` is of version 2.39.5, and 2.40 or later is needed: update it",
            "error: the command `date` is not in the path: install it",
            "error: there is no `scripts/run.sh` beneath skill_root",
            "error: there is no `Cargo.toml` beneath repo_root",
            "warning: the skill says that it needs the network, and has none here",
        ],
    );
    let mut unusual = Machine::complete();
    unusual.commands.insert("git", "git, the stupid content tracker\u{1b}[0m");
    let expected = "error: cannot determine the version of the command `git`; it prints: git, the stupid content \
                    tracker [0m";
    check(&valid_inputs(), &unusual, PreflightRule::Preconditions, &[expected]);
    unusual.commands.insert("git", "git version 3.0.1");
    let expected = "error: the command `git` is of version 3.0.1, and 3 or earlier is needed";
    check(&valid_inputs(), &unusual, PreflightRule::Preconditions, &[expected]);
}

#[test]
fn a_required_variable_that_is_not_set_fails_the_sixth_rule() {
    let mut machine = Machine::complete();
    machine.variables.clear();
    let expected = "error: the variable `TOKEN` is required and not set: Of the service";
    check(&valid_inputs(), &machine, PreflightRule::Environment, &[expected]);
}

#[test]
fn an_optional_input_without_a_value_is_a_warning() {
    let provided = inputs(json!({"day": "2025", "key": "right"}));
    check(
        &provided,
        &Machine::complete(),
        PreflightRule::OptionalInputs,
        &[
            "warning: the input `count` was not given; its default is used: 3",
            "warning: the input `note` was not given; the skill does without it",
        ],
    );
    let report = report(MANIFEST, &provided, &Machine::complete());
    assert!(report.is_ready());
    assert_eq!(report.inputs()["count"], json!(3));
}

#[test]
fn everything_that_is_missing_is_reported_at_once() {
    let mut empty_machine = Machine::complete();
    empty_machine.commands.clear();
    empty_machine.files.clear();
    empty_machine.variables.clear();
    let report = report(MANIFEST, &inputs(json!({"count": "x"})), &empty_machine);
    let failed: Vec<_> = report.rules().iter().filter(|rule| rule.outcome == RuleOutcome::Failed).collect();
    assert_eq!(failed.len(), 4);
    assert_eq!(failed.iter().map(|rule| rule.findings.len()).sum::<usize>(), 2 + 1 + 4 + 1);
}

#[test]
fn a_failed_probe_counts_as_missing() {
    let mut fails = Machine::complete();
    fails.fails = true;
    let report = report(MANIFEST, &valid_inputs(), &fails);
    assert!(!report.is_ready());
    assert!(report.rules()[4].findings.iter().all(|finding| finding.message.contains("the sandbox is gone")));
}

#[test]
fn a_skill_without_a_manifest_skips_further_rules() {
    let (_temp, skill) = skill(None);
    let none = Inputs::new();
    let report = now(Preflight::new(&skill, &none).run(&Machine::complete()));
    assert!(report.is_ready());
    assert!(report.rules()[1..].iter().all(|rule| rule.outcome == RuleOutcome::Skipped));
    let provided = valid_inputs();
    assert!(!now(Preflight::new(&skill, &provided).run(&Machine::complete())).is_ready());
}

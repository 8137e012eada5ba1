//! What a skill needs, asked of a real sandbox: real commands, files and variables.

#![expect(clippy::unwrap_used, reason = "what helps a test fails as a test does")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{ExecutionContext, Local, NetworkPolicy, Sandbox, SharedDir};
use conjure_skill::{CommandProbe, Inputs, Mode, Network, PathBase, Preflight, Probe, Skill, VersionQuery};
use conjure_toolbox::SandboxProbe;

/// A sandbox for a workspace within a repository, and a skill; commands of the test's own are in its path.
struct Fixture {
    dir: tempfile::TempDir,
    sandbox: Sandbox,
    skill: Skill,
}

impl Fixture {
    async fn new(manifest: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for path in ["skills/greet/scripts", "repository/.git", "repository/inner/work", "bin"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        fs::write(at("repository/at-root"), "").unwrap();
        fs::write(at("repository/inner/work/in work"), "").unwrap();
        fs::write(at("skills/greet/SKILL.md"), "---\nname: greet\ndescription: d\n---\n").unwrap();
        fs::write(at("skills/greet/scripts/run.sh"), "").unwrap();
        fs::write(at("skills/greet/skill.manifest.yaml"), manifest).unwrap();
        command(&at("bin/modern"), r#"[ "$1" = --version ] && echo "modern 2.10.0" && exit; exit 1"#);
        command(&at("bin/tmux"), r#"[ "$1" = -V ] && echo "tmux 3.3a" && exit; exit 1"#);
        command(&at("bin/terse"), r#"[ "$1" = -V ] && echo "terse 1.1" >&2 && exit; echo usage; exit 1"#);
        command(&at("bin/mute"), "exit 1");
        let mut context = ExecutionContext::new(at("repository/inner/work").canonicalize().unwrap());
        let skills = at("skills/greet").canonicalize().unwrap();
        context.read_only.push(SharedDir::new(&skills, "/mnt/skills/greet"));
        context.environment.insert("SET".to_owned(), String::new());
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", at("bin").display());
        let local = Local::without_isolation([("PATH".into(), path.into())]);
        let deadline = SystemClock.deadline(Duration::from_secs(300));
        let sandbox = Sandbox::open(&local, &context, Arc::new(SystemClock), deadline).await.unwrap();
        let skill = Skill::load(skills, Mode::Lenient).unwrap();
        Self { dir, sandbox, skill }
    }

    fn probe(&self) -> SandboxProbe<'_> {
        SandboxProbe::new(&self.sandbox, Arc::new(SystemClock), &self.skill)
    }
}

fn command(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn commands_are_found_and_their_version_is_queried() {
    let fixture = Fixture::new("manifest_version: \"1.0\"\n").await;
    let probe = fixture.probe();
    for (name, output) in
        [("modern", "modern 2.10.0\n"), ("tmux", "tmux 3.3a\n"), ("terse", "terse 1.1\n"), ("mute", "")]
    {
        let found = probe.command(name, VersionQuery::Yes).await.unwrap();
        assert_eq!(found, CommandProbe::Found { version_output: output.to_owned() }, "{name}");
    }
    let not_queried = CommandProbe::Found { version_output: String::new() };
    assert_eq!(probe.command("modern", VersionQuery::No).await.unwrap(), not_queried);
    for name in ["conjure-absent", "$(touch x)", "a b", "'"] {
        assert_eq!(probe.command(name, VersionQuery::Yes).await.unwrap(), CommandProbe::NotFound, "{name}");
    }
    assert!(!fixture.dir.path().join("repository/inner/work/x").exists());
}

#[tokio::test]
async fn files_are_looked_for_beneath_their_base() {
    let fixture = Fixture::new("manifest_version: \"1.0\"\n").await;
    let probe = fixture.probe();
    for (base, path, there) in [
        (PathBase::SkillRoot, "scripts/run.sh", true),
        (PathBase::SkillRoot, "scripts", true),
        (PathBase::SkillRoot, "at-root", false),
        (PathBase::RepoRoot, "at-root", true),
        (PathBase::RepoRoot, "inner/work/in work", true),
        (PathBase::RepoRoot, "in work", false),
        (PathBase::Cwd, "in work", true),
        (PathBase::Cwd, "at-root", false),
        (PathBase::Cwd, "-n", false),
    ] {
        assert_eq!(probe.file(base, path).await.unwrap(), there, "{base} {path}");
    }
    fs::remove_dir(fixture.dir.path().join("repository/.git")).unwrap();
    assert!(
        probe.file(PathBase::RepoRoot, "in work").await.unwrap(),
        "without a repository it is the workspace"
    );
}

#[tokio::test]
async fn variables_match_those_of_commands() {
    let fixture = Fixture::new("manifest_version: \"1.0\"\n").await;
    let probe = fixture.probe();
    assert!(probe.variable("SET").await.unwrap());
    assert!(!probe.variable("UNSET").await.unwrap());
    for name in ["", "A-B", "1A", "A}; touch x; {"] {
        assert!(probe.variable(name).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn a_preflight_in_a_sandbox_reports_everything_missing() {
    let manifest = r#"
manifest_version: "1.0"
env: {required: [{name: SET}, {name: UNSET}]}
preconditions:
  commands: [{cmd: modern, min_version: "2.9"}, {cmd: terse, min_version: "1.2"}, {cmd: conjure-absent}]
  files: [{path: scripts/run.sh}, {path: absent, base: repo_root}]
execution: {network: true}
"#;
    let fixture = Fixture::new(manifest).await;
    let none = Inputs::new();
    let probe = fixture.probe().with_network(&NetworkPolicy::None);
    assert_eq!(probe.network(), Network::Reachable, "it is the host's");
    let report = Preflight::new(&fixture.skill, &none).run(&probe).await;
    let told: Vec<_> =
        report.rules().iter().flat_map(|rule| &rule.findings).map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "error: the command `terse` is of version 1.1, and 1.2 or later is needed: update it",
            "error: the command `conjure-absent` is not in the path: install it",
            "error: there is no `absent` beneath repo_root",
            "error: the variable `UNSET` is required and not set",
        ]
    );
    assert!(!report.is_ready());
}

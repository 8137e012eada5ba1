//! `conjure run --sandbox docker` and `conjure doctor` against this machine's engine, with an image that the tests make and
//! remove.
//!
//! Where no engine answers the tests say so and pass, unless `CONJURE_TEST_REQUIRE=all` is set; those of what is said without
//! one need none.

use std::os::unix::fs::{MetadataExt as _, chown};

use crate::engine::docker;
use crate::image::{TestImage, test_image};
use crate::support::{Conjure, Finished, script};

/// No engine listens there.
const NOWHERE: &str = "unix:///nonexistent/engine.sock";

/// No engine has it.
const NO_IMAGE: &str = "conjure-test/none:here";

/// With the engine that has the image.
fn conjure(arguments: &[&str]) -> Conjure {
    Conjure::new(arguments).env("DOCKER_HOST", docker().to_string())
}

/// A run whose model says nothing but this.
fn run_with(arguments: &[&str], variables: &[(&str, &str)]) -> Finished {
    let script = script("- content: Done.\n");
    let run = Conjure::new(["run", "--sandbox", "docker", "--script"]).arg(script.path());
    let run = variables.iter().fold(run, |run, (name, value)| run.env(name, value));
    let done = run.args(arguments).arg("Go").finish();
    let path = script.path().to_str().unwrap();
    Finished { stderr: done.stderr.replace(path, "[SCRIPT]"), ..done }
}

/// The doctor's lines about containers, without machine-specific parts.
fn of_containers(report: &str, image: &str) -> String {
    let lines = report.lines().skip_while(|line| !line.contains("container engine"));
    let lines = lines.take_while(|line| !line.contains("model key")).map(|line| {
        let line = line.replace(image, "[IMAGE]").replace(&docker().to_string(), "[ENGINE]");
        line.split(' ').map(without_version).collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Versions and digests by what they are.
fn without_version(word: &str) -> String {
    if word.starts_with("(sha256:") {
        return "([DIGEST])".to_owned();
    }
    let is_version = word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    if is_version { "[VERSION]" } else { word }.to_owned()
}

/// As the exit code, and then what is said.
fn stderr_of(finished: &Finished) -> String {
    format!("exit code: {:?}\n{}", finished.code, finished.stderr)
}

#[test]
fn a_run_in_a_container_reads_skills_and_files_belong_to_the_directorys_owner() {
    let Some(image) = test_image() else { return };
    let script = script(
        r#"
- content:
    - tool_use: {name: view, input: {path: /mnt/skills/minimal-skill/SKILL.md}}
- expect: {results: [{contains: Greet the user, is_error: false}]}
  content:
    - tool_use:
        name: bash_tool
        input:
          command: 'tail -n 1 /mnt/skills/minimal-skill/SKILL.md; mkdir -p deep; echo made > /workspace/deep/product'
          description: Read and write
- expect: {results: [{contains: The smallest skill says hello}]}
  content:
    - tool_use:
        name: bash_tool
        input: {command: 'pwd; id -u', description: Look}
- content: "{{result:last}}"
"#,
    );
    // The user of the tests; and another user, to whom only root can give a directory.
    let own_uid = rustix::process::geteuid();
    let owners = if own_uid.is_root() { vec![0, 4321] } else { vec![own_uid.as_raw()] };
    for owner in owners {
        let workspace = tempfile::tempdir().unwrap();
        chown(workspace.path(), Some(owner), None).unwrap();
        let run = conjure(&["run", "--sandbox", "docker", "--skills", "fixtures/skills", "--image"]);
        let run = run.arg(image.name()).arg("--script").arg(script.path());
        let done = run.arg("--workspace").arg(workspace.path()).arg("Do it.").finish().code(0);
        let lines: Vec<&str> = done.stdout.lines().collect();
        assert_eq!(lines[0], "/workspace", "{lines:?}");
        assert_ne!(lines[1], "0", "commands are not root: {lines:?}");
        let product = workspace.path().join("deep/product");
        assert_eq!(std::fs::read_to_string(&product).unwrap(), "made\n");
        for file_metadata in [product, workspace.path().join("deep")] {
            assert_eq!(
                std::fs::metadata(&file_metadata).unwrap().uid(),
                owner,
                "{}",
                file_metadata.display()
            );
        }
        done.says("product");
    }
}

#[test]
fn a_missing_image_is_reported_with_a_hint() {
    let Some(_image) = test_image() else { return };
    let done = run_with(&["--image", NO_IMAGE], &[("DOCKER_HOST", &docker().to_string())]);
    assert_eq!(done.stdout, "");
    insta::assert_snapshot!("run_without_image", stderr_of(&done));
}

#[test]
fn a_missing_engine_is_reported_with_the_searched_addresses() {
    let done = run_with(&[], &[("DOCKER_HOST", NOWHERE)]);
    assert_eq!(done.stdout, "");
    insta::assert_snapshot!("run_without_engine", stderr_of(&done));
    // The same where the configuration says where it is.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("conjure.toml");
    std::fs::write(&file, format!("engine = \"{NOWHERE}\"\n")).unwrap();
    let configured = run_with(&["--config", file.to_str().unwrap()], &[]);
    assert_eq!(stderr_of(&configured), stderr_of(&done));
}

#[test]
fn the_doctor_reports_engine_image_and_runtime() {
    let Some(image) = test_image() else { return };
    let examine = |image: &TestImage| conjure(&["doctor"]).env("CONJURE_IMAGE", image.name());
    let report = examine(&image).finish().code(0);
    insta::assert_snapshot!("doctor_with_image", of_containers(&report.stdout, image.name()));
    // Where containers are what is configured, they are needed.
    examine(&image).env("CONJURE_EXECUTOR", "docker").finish().code(0);
}

#[test]
fn the_doctor_explains_how_to_get_an_image() {
    let Some(_image) = test_image() else { return };
    let examine = || conjure(&["doctor"]).env("CONJURE_IMAGE", NO_IMAGE);
    let report = examine().finish().code(0);
    insta::assert_snapshot!("doctor_without_image", of_containers(&report.stdout, NO_IMAGE));
    let needed = examine().env("CONJURE_EXECUTOR", "docker").finish().code(1);
    assert!(needed.stdout.contains("FAIL container image"), "{}", needed.stdout);
}

#[test]
fn the_doctor_explains_how_to_get_an_engine() {
    let examine = || Conjure::new(["doctor"]).env("DOCKER_HOST", NOWHERE);
    let report = examine().finish().code(0);
    insta::assert_snapshot!("doctor_without_engine", of_containers(&report.stdout, NO_IMAGE));
    let needed = examine().env("CONJURE_EXECUTOR", "docker").finish().code(1);
    assert!(needed.stdout.contains("FAIL container engine"), "{}", needed.stdout);
}

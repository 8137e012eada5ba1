//! Invalid input, failing models and reached limits: a clear message and the right exit code.

use std::path::Path;

use crate::support::{Conjure, Finished, fixture, script};

/// A run with these turns.
fn play(turns: &str, args: &[&str]) -> Finished {
    let script = script(turns);
    Conjure::new(["run", "--sandbox", "local", "--script"]).arg(script.path()).args(args).arg("Go").finish()
}

/// A run whose script is this path.
fn with_script(path: &Path) -> Finished {
    Conjure::new(["run", "--sandbox", "local", "--script"]).arg(path).arg("Go").finish()
}

/// A turn that runs a command.
fn bash(command: &str) -> String {
    let command = serde_json::Value::from(command);
    format!("- content: [{{tool_use: {{name: bash_tool, input: {{command: {command}, description: x}}}}}}]\n")
}

#[test]
fn an_unknown_option_is_a_usage_error() {
    Conjure::new(["run", "--scrpt", "x", "Go"]).finish().code(2).says("--script");
    Conjure::new(["frobnicate"]).finish().code(2);
    Conjure::new(["run"]).finish().code(2).says("<PROMPT>");
}

#[test]
fn help_and_version_are_no_errors() {
    insta::assert_snapshot!("help", Conjure::new(["--help"]).finish().code(0).stdout);
    insta::assert_snapshot!("run_help", Conjure::new(["run", "--help"]).finish().code(0).stdout);
    let version = Conjure::new(["--version"]).finish().code(0);
    assert_eq!(version.stdout, format!("conjure {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_script_that_cannot_be_read_is_a_usage_error() {
    with_script(Path::new("no/such/script.yaml")).code(2).says("no/such/script.yaml").says("hint: ");
    with_script(Path::new("fixtures")).code(2).says("error: ");
    with_script(Path::new("/dev/zero")).code(2).says("error: ");
    with_script(script("- contents: x\n").path()).code(2).says("contents");
}

#[test]
fn a_missing_allowed_path_is_named_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.toml");
    std::fs::write(&config, "allowed_paths = [\"missing\"]").unwrap();
    let (config, workspace) = (config.to_str().unwrap(), dir.path().to_str().unwrap());
    play("- content: x\n", &["--config", config, "--workspace", workspace])
        .code(2)
        .says(&format!("the allowed path `{workspace}/missing` does not exist"))
        .does_not_say("--workspace");
    play("- content: x\n", &["--workspace", "no/such"])
        .code(2)
        .says("`--workspace`: `no/such` does not exist");
}

#[test]
fn a_missing_directory_of_skills_is_a_usage_error() {
    play("- content: x\n", &["--skills", "no/such/directory"]).code(2).says("no/such/directory");
}

#[test]
fn a_broken_skill_is_a_warning_and_the_others_are_there() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in
        [("good", "---\nname: good\ndescription: d\n---\n"), ("bad", "---\nname: bad\n---\n")]
    {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        std::fs::write(dir.path().join(name).join("SKILL.md"), content).unwrap();
    }
    let turns = "- expect: {system: {contains: good}}\n  content: Good.\n";
    let dir = dir.path().to_str().unwrap();
    let done = play(turns, &["--skills", dir]).code(0).says("warning: ").says("description");
    assert_eq!(done.stdout, "Good.\n");
}

#[test]
fn an_unavailable_sandbox_is_a_usage_error() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let script = script("- content: x\n");
    let run = || Conjure::new(["run", "--script"]).arg(script.path());
    let local = || run().args(["--sandbox", "local", "Go"]);
    local().args(["--memory", "1g"]).finish().code(2).says("cannot enforce what is demanded of it: memory");
    local().args(["--cpus", "2"]).finish().code(2).says("processor");
    local().args(["--network", "limited:example.org"]).finish().code(2).says("cannot limit the network");
    run().args(["--memory", "0", "Go"]).finish().code(2).says("memory must be 8 MiB to 64 TiB");
    run().args(["--memory", "lots", "Go"]).finish().code(2).says("`lots` is not a size");
    run().args(["--cpus", "0", "Go"]).finish().code(2).says("the number of processors must be 0.05 to 4096");
    run().args(["--network", "bridge", "Go"]).finish().code(2).says("use `full`");
    run().args(["--sandbox", "cloud", "Go"]).finish().code(2).says("there are `jail`, `docker` and `local`");
    run().args(["--image", "debian", "Go"]).finish().code(2).says("the sandbox `jail` is made of no image");
    local().args(["--image", "debian"]).finish().code(2).says("`--sandbox docker` makes a container");
    run().args(["--sandbox", "nowhere", "Go"]).finish().code(2).says("there is no sandbox `nowhere`");
}

#[test]
fn a_configuration_that_cannot_be_used_is_a_usage_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    std::fs::write(&file, "max_iteration = 3").unwrap();
    Conjure::new(["skills", "list", "--config"])
        .arg(&file)
        .finish()
        .code(2)
        .says("unknown key `max_iteration`")
        .says("hint: did you mean `max_iterations`?");
    Conjure::new(["skills", "list"]).env("CONJURE_NETWORK", "bridge").finish().code(2).says("use `full`");
    Conjure::new(["skills", "list"]).env("CONJURE_CONFIG", "/nowhere").finish().code(2).says("/nowhere");
    Conjure::new(["skills", "list"]).env("CONJURE_LOG", "=,=").finish().code(2).says("CONJURE_LOG");
}

#[test]
fn a_prompt_of_ten_megabytes_is_refused_and_an_empty_one_too() {
    let script = script("- content: x\n");
    let run = || Conjure::new(["run", "--sandbox", "local", "--script"]).arg(script.path());
    run()
        .arg("Go")
        .input(vec![b'a'; 10 * 1024 * 1024])
        .finish()
        .code(2)
        .says("larger than 4 MiB")
        .says("--file");
    run().arg("Go").input([0xff, 0xfe]).finish().code(2).says("not UTF-8");
    run().arg(" ").finish().code(2).says("the prompt is empty");
}

#[test]
fn inputs_are_regular_files_with_names_of_their_own() {
    let turns = "- content: x\n";
    play(turns, &["--file", "/dev/zero"])
        .code(2)
        .says("`/dev/zero` cannot be given: it is not a regular file");
    play(turns, &["--file", "fixtures"]).code(2).says("`fixtures` cannot be given: it is not a regular file");
    play(turns, &["--file", "no/such/file"]).code(2).says("no/such/file");
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("app.log");
    std::fs::write(&other, "another").unwrap();
    play(turns, &["--file", "fixtures/data/app.log", "--file", other.to_str().unwrap()])
        .code(2)
        .says("another file of that name");
    play(turns, &["--workspace", "no/such/directory"]).code(2).says("--workspace");
}

#[test]
fn a_variable_must_have_a_name_and_a_value() {
    play("- content: x\n", &["--env", "1X=y"]).code(2).says("NAME=VALUE");
    play("- content: x\n", &["--env", "NOT_SET_ANYWHERE"]).code(2).says("not set");
}

#[test]
fn output_of_200_megabytes_is_truncated_and_counted() {
    let turns =
        format!("{}- content: \"{{{{result:last}}}}\"\n", bash("head -c 200000000 /dev/zero | tr '\\0' x"));
    // However long that takes.
    let done = play(&turns, &["--tool-timeout", "300"]).code(0);
    assert!(done.stdout.len() < 300_000, "{} bytes", done.stdout.len());
    assert!(done.stdout.contains("200000000"), "the count is missing at {}", &done.stdout[..1000]);
}

#[test]
fn a_device_is_not_shown() {
    let turns = "- content: [{tool_use: {name: view, input: {path: /dev/zero}}}]\n\
                 - expect: {results: [{is_error: true}]}\n  content: \"{{result:last}}\"\n";
    play(turns, &[]).code(0);
}

#[test]
fn too_many_turns_are_a_limit() {
    let turns = format!("{}{}{}", bash("echo 1"), bash("echo 2"), bash("echo 3"));
    play(&turns, &["--max-turns", "2"]).code(3).says("max_iterations");
    play(&turns, &["--max-turns", "0"]).code(2);
}

#[test]
fn the_deadline_of_the_run_is_a_limit() {
    play(&bash("sleep 1000"), &["--timeout", "1"]).code(3).says("deadline").says("--timeout");
    play(&bash("true"), &["--timeout", "0"]).code(2);
}

#[test]
fn a_tool_that_takes_too_long_is_reported_to_the_model() {
    let turns = format!(
        "{}- expect: {{results: [{{is_error: true}}]}}\n  content: \"Too slow.\"\n",
        bash("echo begun; sleep 1000")
    );
    let done = play(&turns, &["--tool-timeout", "0.5"]).code(0);
    assert_eq!(done.stdout, "Too slow.\n");
}

#[test]
fn a_truncated_answer_is_a_limit_and_not_printed() {
    let cut = play("- {content: Half an ans, stop_reason: max_tokens}\n", &[]).code(3).says("Half an ans");
    assert_eq!(cut.stdout, "");
    play("- {content: x, stop_reason: model_context_window_exceeded}\n", &[]).code(3).says("--file");
}

#[test]
fn a_refusal_has_its_own_code() {
    let refused = play("- {content: I will not., stop_reason: refusal}\n", &[]).code(4).says("I will not.");
    assert_eq!(refused.stdout, "");
}

#[test]
fn a_model_that_fails_is_an_error() {
    play("- {error: {type: overloaded_error, message: the service is busy}}\n", &[])
        .code(1)
        .says("the service is busy");
    play("- {content: A long text, cut_after: 1}\n", &[]).code(1).says("error: ");
    // The script is at its end while the conversation is not.
    play(&bash("true"), &[]).code(1).says("error: ");
    play("- {expect: {user: {contains: something else}}, content: x}\n", &[]).code(1).says("something else");
}

#[test]
fn an_answer_without_text_succeeds_with_a_note() {
    let done = play("- content: []\n", &[]).code(0).says("holds no text");
    assert_eq!(done.stdout, "");
}

#[test]
fn a_failing_model_is_an_event_too() {
    let failed = play("- {error: {type: api_error, message: broken}}\n", &["--json"]).code(1);
    let events = failed.json_lines();
    assert!(events.iter().any(|event| event["type"] == "session.error"), "{events:?}");
}

#[test]
fn a_file_with_an_unprintable_name_is_a_usage_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a\nb.csv");
    std::fs::write(&file, "").unwrap();
    play("- content: x\n", &["--file", file.to_str().unwrap()])
        .code(2)
        .says("`--file`: the name `a\\nb.csv`");
}

#[test]
fn a_recording_that_cannot_be_written_is_a_usage_error() {
    play("- content: x\n", &["--record", "no/such/directory/record.yaml"]).code(2).says("--record");
    play("- content: x\n", &["--record", "/dev/null"]).code(2).says("--record");
}

#[test]
fn an_incomplete_recording_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let turns = format!("{}- content: All is well\n", bash(&format!("rm -r '{}'", inner.display())));
    let record = inner.join("record.yaml");
    let done = play(&turns, &["--record", record.to_str().unwrap()]).code(1);
    assert_eq!(done.stdout, "All is well\n");
    done.says("error: the recording is incomplete").says("record.yaml");
}

#[test]
fn a_recording_does_not_overwrite_its_script() {
    let script = script("- content: x # a comment of the author\n");
    let written = std::fs::read_to_string(script.path()).unwrap();
    let run = Conjure::new(["run", "--sandbox", "local", "--script"]).arg(script.path());
    run.arg("--record").arg(script.path()).arg("Go").finish().code(2).says("--record").says("hint: ");
    assert_eq!(std::fs::read_to_string(script.path()).unwrap(), written);
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    let full =
        |run: Conjure| run.with_full_output().finish().code(1).says("standard output cannot be written");
    let script = script("- content: x\n");
    let run = || Conjure::new(["run", "--sandbox", "local", "--script"]).arg(script.path()).arg("Go");
    full(run());
    full(run().arg("--json"));
    full(Conjure::new(["skills", "list", "--skills"]).arg(fixture("skills")));
    full(Conjure::new(["--help"]));
}

#[test]
fn a_missing_temporary_directory_is_named() {
    let script = script("- content: x\n");
    let run = Conjure::new(["run", "--sandbox", "local", "--script"]).arg(script.path()).arg("Go");
    // Without a home, its data would go there.
    run.env("TMPDIR", "/no/such/directory")
        .env("HOME", "")
        .finish()
        .code(2)
        .says("/no/such/directory")
        .says("TMPDIR")
        .does_not_say("--workspace");
}

#[test]
fn a_closed_output_pipe_causes_no_panic() {
    let script = script("- content: x\n");
    let run_without_reader = |run: Conjure| run.without_reader().finish().does_not_say("panicked");
    run_without_reader(Conjure::new(["skills", "list", "--skills"]).arg(fixture("skills"))).code(0);
    run_without_reader(Conjure::new(["--help"])).code(0);
    let run = Conjure::new(["run", "--sandbox", "local", "--json", "--script"]).arg(script.path()).arg("Go");
    run_without_reader(run).code(1);
    // A panic would be code 101.
    let run = Conjure::new(["run", "--sandbox", "local", "--script"]).arg(script.path()).arg("Go");
    run.env("CONJURE_LOG", "trace").without_readers().finish().code(1);
    Conjure::new(["skills", "list", "--skills", "nowhere"]).without_readers().finish().code(2);
}

#[test]
fn an_unlimitable_network_is_rejected() {
    let script = script("- content: x\n");
    let run = Conjure::new(["run", "--sandbox", "local", "--script"]).arg(script.path()).arg("Go");
    run.env("CONJURE_NETWORK", "example.org").finish().code(2).says("cannot limit the network");
}

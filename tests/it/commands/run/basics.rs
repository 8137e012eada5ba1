//! `conjure run`: its output, and the files that it leaves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Conjure, fixture, script};

/// The main job on this data.
fn sales(data: &Path) -> Conjure {
    Conjure::new(["run", "--skills", "fixtures/skills"])
        .arg("--script")
        .arg(fixture("scripts/sales-report.yaml"))
        .arg("--file")
        .arg(data)
}

/// The growth of each region between the last two years, in percent, the fastest first: computed here, so that the
/// skill's script is not believed.
pub(crate) fn growth(csv: &str) -> Vec<(String, f64)> {
    let mut sums: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for line in csv.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let (year, region, revenue) = (&cells[0][..4], cells[1], cells[4].parse::<f64>().unwrap());
        *sums.entry(region.to_owned()).or_default().entry(year.to_owned()).or_default() += revenue;
    }
    let mut growth: Vec<(String, f64)> = sums
        .into_iter()
        .map(|(region, years)| {
            let sums: Vec<f64> = years.into_values().collect();
            let [.., before, after] = sums[..] else { panic!("two years are needed") };
            (region, (after - before) / before * 100.0)
        })
        .collect();
    growth.sort_by(|a, b| b.1.total_cmp(&a.1));
    growth
}

#[test]
fn the_answer_has_the_real_figures_and_is_all_of_standard_output() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let data = fixture("data/sales.csv");
    let (region, percent) = growth(&std::fs::read_to_string(&data).unwrap()).swap_remove(0);
    let done = sales(&data).arg("Which region grew fastest?").finish().code(0);
    assert!(
        done.stdout.starts_with(&format!("{region} grew fastest: {percent:+.1} %")),
        "{region} {percent}: {}",
        done.stdout
    );
    assert_eq!(done.stdout.lines().count(), 1);
    done.says("the model's words come from the script")
        .says("the tools are real")
        .says("the sandbox `jail` keeps commands apart from this machine")
        .says("skills_run_script")
        .does_not_say("\x1b[")
        .does_not_say("grew fastest: ");
}

#[test]
fn different_data_gives_a_different_answer() {
    let original = std::fs::read_to_string(fixture("data/sales.csv")).unwrap();
    let slowest = growth(&original).pop().unwrap().0;
    let boosted: String = original
        .lines()
        .map(|line| match line.rsplit_once(',') {
            Some((rest, revenue)) if line.starts_with("2024") && rest.contains(&slowest) => {
                format!("{rest},{}\n", revenue.parse::<f64>().unwrap() * 10.0)
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("sales.csv");
    std::fs::write(&data, &boosted).unwrap();
    let (region, percent) = growth(&boosted).swap_remove(0);
    assert_eq!(region, slowest);
    let done = sales(&data).arg("Which region grew fastest?").finish().code(0);
    assert!(done.stdout.starts_with(&format!("{region} grew fastest: {percent:+.1} %")), "{}", done.stdout);
}

#[test]
fn every_script_of_the_fixtures_plays() {
    for (name, file) in [
        ("log-analyzer", Some("data/app.log")),
        ("minimal-skill", None),
        ("sales-report", Some("data/sales.csv")),
        ("sales-report-attached", Some("data/sales.csv")),
        ("sales-report-view", Some("data/sales.csv")),
        ("serve-quickstart", None),
        ("test-skill", None),
    ] {
        let mut run = Conjure::new(["run", "--skills", "fixtures/skills", "--sandbox", "local", "--script"])
            .arg(fixture(&format!("scripts/{name}.yaml")));
        if let Some(file) = file {
            let how = if name.ends_with("-attached") { "--attach" } else { "--file" };
            run = run.arg(how).arg(fixture(file));
        }
        if name.ends_with("-view") {
            run = run.args(["--activation", "view"]);
        }
        let done = run.arg("Do what the skill is for.").finish().code(0);
        assert!(!done.stdout.trim().is_empty(), "{name}: {}", done.stderr);
    }
    let scripts = std::fs::read_dir(fixture("scripts")).unwrap();
    let played = scripts.filter(|entry| {
        entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "yaml")
    });
    assert_eq!(played.count(), 7, "a new script must be played here");
}

#[test]
fn outputs_are_listed_and_retained_and_inputs_are_not() {
    let run = sales(&fixture("data/sales.csv")).arg("Which region grew fastest?");
    let home = run.home().canonicalize().unwrap();
    let running = run.start();
    let done = running.wait_keeping_home();
    let stderr = &done.0.stderr;
    assert_eq!(done.0.code, Some(0), "{stderr}");
    let listed: Vec<&str> = stderr.lines().skip_while(|line| *line != "produced files:").skip(1).collect();
    assert_eq!(listed.len(), 3, "{stderr}");
    let path = PathBuf::from(&listed[0][listed[0].find('/').unwrap()..]);
    assert!(path.starts_with(&home) && path.ends_with("sales-report.md"), "{stderr}");
    assert!(std::fs::read_to_string(&path).unwrap().contains("# Sales growth by region"));
    assert!(listed[1].contains("stay with the session"), "{stderr}");
    let dir = path.iter().find_map(|part| part.to_str().filter(|name| name.starts_with("ses_"))).unwrap();
    let session: conjure::SessionId = dir.parse().unwrap();
    let goes_on = format!("`conjure sessions resume {session}` continues this session");
    assert_eq!(listed[2], goes_on);
}

/// The names in a directory.
fn names(dir: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort_unstable();
    names
}

/// A run that says that its session is not kept, in this home.
fn ephemeral(script: &str) -> Conjure {
    Conjure::new(["run", "--ephemeral", "--skills", "fixtures/skills", "--sandbox", "local", "--script"])
        .arg(fixture(&format!("scripts/{script}.yaml")))
}

#[test]
fn a_temporary_run_leaves_nothing() {
    let (done, home) = ephemeral("minimal-skill").arg("Greet me.").start().wait_keeping_home();
    done.code(0).does_not_say("produced files").does_not_say("conjure sessions");
    // The data directory alone, and nothing of the run in it.
    assert_eq!(names(home.path()), [".local"]);
    let data = home.path().join(".local/share/conjure");
    assert_eq!(names(&data), ["hosts", "processes", "tenants"]);
    // A lock, and no host.
    assert_eq!(names(&data.join("processes")), ["startup.lock"]);
    for dir in ["sandboxes", "workspaces"] {
        assert_eq!(names(&data.join("tenants/local").join(dir)), [""; 0]);
    }
}

#[test]
fn outputs_of_a_temporary_run_are_copied() {
    let run = ephemeral("sales-report").arg("--file").arg(fixture("data/sales.csv"));
    let (done, _home) = run.arg("Which region grew fastest?").start().wait_keeping_home();
    let done = done.code(0).says("which is kept").does_not_say("conjure sessions");
    let line = done.stderr.lines().skip_while(|line| *line != "produced files:").nth(1).unwrap();
    let path = Path::new(&line[line.find('/').unwrap()..]);
    assert!(std::fs::read_to_string(path).unwrap().contains("# Sales growth by region"));
}

#[test]
fn a_run_without_a_data_directory_reports_a_temporary_session() {
    let script = script("- content: Done.\n");
    let run = || Conjure::new(["run", "--sandbox", "local", "--script"]).arg(script.path()).arg("Go");
    let done = run().env("HOME", "").finish().code(0);
    assert_eq!(done.stdout, "Done.\n");
    done.says("warning: the session is not kept").says("CONJURE_DATA").does_not_say("conjure sessions");
    // One that cannot be used, where it was not named: a file is in its place.
    let run_in = run();
    std::fs::write(run_in.home().join(".local"), "").unwrap();
    run_in.finish().code(0).says("warning: the session is not kept").says("/.local/share/conjure");
    // One that was named is the one that is meant.
    run()
        .args(["--data", "/proc/none"])
        .finish()
        .code(2)
        .says("error: the data directory `/proc/none` cannot be used")
        .says("`--ephemeral` keeps nothing");
}

#[test]
fn a_chosen_workspace_holds_inputs_and_products() {
    let workspace = tempfile::tempdir().unwrap();
    sales(&fixture("data/sales.csv"))
        .arg("--workspace")
        .arg(workspace.path())
        .arg("Which region grew fastest?")
        .finish()
        .code(0)
        .says("sales-report.md")
        .does_not_say("is kept")
        .does_not_say("stay with");
    let mut names: Vec<_> =
        std::fs::read_dir(workspace.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["sales-report.md", "sales.csv"]);
}

#[test]
fn a_linked_workspace_keeps_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    for path in ["real", "other"] {
        std::fs::create_dir(dir.join(path)).unwrap();
    }
    let (data, link) = (dir.join("data"), dir.join("link"));
    std::os::unix::fs::symlink("real", &link).unwrap();
    let turns = "- content: [{tool_use: {name: bash_tool, input: {command: echo x >> made, description: x}}}]\n\
                 - content: Done.\n";
    let script = script(&turns.repeat(2));
    let run = |workspace: &Path| {
        let run = Conjure::new(["run", "--workspace"]).arg(workspace).arg("--script").arg(script.path());
        run.arg("Go").env("CONJURE_DATA", &data).finish().code(0)
    };
    let real = dir.join("real");
    let done = run(&link).says(&format!(
        "`--workspace {}` is a link: tools work in {}",
        link.display(),
        real.display()
    ));
    run(&real).does_not_say("is a link");

    // Where the link leads later makes no difference to the session.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("other", &link).unwrap();
    let (_, remainder) = done.stderr.split_once("conjure sessions resume ").unwrap();
    let resume =
        Conjure::new(["sessions", "resume", &remainder[..37], "--script"]).arg(script.path()).arg("Again");
    resume.env("CONJURE_DATA", &data).finish().code(0);
    assert_eq!(std::fs::read_to_string(real.join("made")).unwrap(), "x\nx\nx\n");
    assert!(!dir.join("other/made").exists());
}

#[test]
fn events_are_lines_of_json_with_places_in_order() {
    let done =
        sales(&fixture("data/sales.csv")).arg("--json").arg("Which region grew fastest?").finish().code(0);
    let events = done.json_lines();
    let session = events[0]["session_id"].as_str().unwrap();
    assert!(session.starts_with("sesn_"), "{session}");
    let mut ids: Vec<&str> = Vec::new();
    let mut last = 0;
    for event in &events {
        assert_eq!(event["schema"], 2);
        assert_eq!(event["session_id"], session);
        assert!(event["created_at"].as_str().unwrap().ends_with('Z'));
        let seq = event["seq"].as_u64().unwrap();
        assert!(seq >= last, "{seq} after {last}");
        last = seq;
        ids.push(event["id"].as_str().unwrap());
    }
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    for expected in [
        "user.message",
        "session.status_running",
        "agent.thinking",
        "agent.tool_use",
        "agent.tool_result",
        "agent.message",
    ] {
        assert!(types.contains(&expected), "{expected} is missing in {types:?}");
    }
    assert_eq!(types.last(), Some(&"session.status_idle"));
    assert_eq!(events.last().unwrap()["stop_reason"]["type"], "end_turn");
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id occurs twice");
}

#[test]
fn an_event_is_one_line_even_with_line_breaks() {
    let script = script("- content: [{raw: \"{\\\"type\\\":\\\"text\\\",\\n\\\"text\\\":\\\"x\\\"}\"}]\n");
    let run = Conjure::new(["run", "--sandbox", "local", "--json", "--script"]).arg(script.path()).arg("Go");
    let events = run.finish().code(0).json_lines();
    let message = events.iter().find(|event| event["type"] == "agent.message").unwrap();
    assert_eq!(message["content"][0]["text"], "x");
}

#[test]
fn a_recording_plays_again_with_the_same_requests() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first.json"), dir.path().join("second.json"));
    // The same directories each time, because their paths are in the requests.
    let (workspace, data) = (dir.path().join("workspace"), dir.path().join("data"));
    let run = |script: &Path, record: &Path| {
        let _ = std::fs::remove_dir_all(&workspace);
        std::fs::create_dir(&workspace).unwrap();
        Conjure::new([
            "run",
            "--skills",
            "fixtures/skills",
            "--sandbox",
            "local",
            "--file",
            "fixtures/data/sales.csv",
        ])
        .arg("--workspace")
        .arg(&workspace)
        .arg("--data")
        .arg(&data)
        .arg("--script")
        .arg(script)
        .arg("--record")
        .arg(record)
        .arg("Which region grew fastest?")
        .finish()
        .code(0)
        .stdout
    };
    let answers = [run(&fixture("scripts/sales-report.yaml"), &first), run(&first, &second)];
    assert_eq!(answers[0], answers[1]);
    let sent = |path: &Path| -> Vec<String> {
        let script: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let turns = script["turns"].as_array().unwrap();
        turns.iter().map(|turn| turn["sent"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(sent(&first).len(), 4);
    assert_eq!(sent(&first), sent(&second));
}

#[test]
fn environment_secrets_reach_only_the_tools() {
    let dir = tempfile::tempdir().unwrap();
    let (record, secret) = (dir.path().join("record.json"), "hunter2-\"quoted\"");
    let script = script(
        r#"
- content:
    - tool_use:
        name: bash_tool
        input: {command: 'printf %s "$API_KEY" | wc -c; echo "$API_KEY"; echo "$PLAIN"', description: Look}
- content: "{{result:last}}"
"#,
    );
    for json in [false, true] {
        let mut run =
            Conjure::new(["run", "--sandbox", "local", "--env", "API_KEY", "--env", "PLAIN=visible"])
                .env("API_KEY", secret)
                .arg("--script")
                .arg(script.path())
                .arg("--record")
                .arg(&record)
                .env("CONJURE_LOG", "trace");
        if json {
            run = run.arg("--json");
        }
        let done = run.arg("Say it").finish().code(0);
        let recorded = std::fs::read_to_string(&record).unwrap();
        for text in [&done.stdout, &done.stderr, &recorded] {
            assert!(!text.contains("hunter2"), "{text}");
        }
        assert!(done.stdout.contains(&secret.len().to_string()), "{}", done.stdout);
        assert!(done.stdout.contains("[REDACTED:API_KEY]"), "{}", done.stdout);
        assert!(done.stdout.contains("visible"), "{}", done.stdout);
    }
}

#[test]
fn standard_input_is_extra_context_and_files_are_named() {
    let script = script("- content: \"{{user}}\"\n");
    let done = Conjure::new(["run", "--sandbox", "local", "--file", "fixtures/data/app.log", "--script"])
        .arg(script.path())
        .arg("Look at this")
        .input("a piped text")
        .finish()
        .code(0);
    for part in ["Look at this", "a piped text", "/app.log"] {
        assert!(done.stdout.contains(part), "{part} is missing in {}", done.stdout);
    }
}

#[test]
fn the_environment_and_the_file_configure_a_run() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let script = script("- content: Done.\n");
    let run = || Conjure::new(["run", "--script"]).arg(script.path());
    run().arg("Go").env("CONJURE_EXECUTOR", "local").finish().code(0);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("conjure.toml");
    std::fs::write(&file, "executor = \"local\"\n").unwrap();
    let done = run().arg("--config").arg(&file).arg("Go").finish().code(0);
    assert_eq!(done.stdout, "Done.\n");
    run().arg("Go").finish().code(0).says("the sandbox `jail` keeps commands apart");
}

//! `conjure sessions`: stored runs, and resuming one, also after a crash.

use std::path::Path;

use rustix::process::Signal;

use crate::support::{Conjure, Finished, eventually, fixture, script};

/// Runs a command on the sessions in this data directory.
fn conjure(data: &Path, arguments: &[&str]) -> Conjure {
    // The options that name the directory stand behind the subcommand.
    Conjure::new(arguments).env("CONJURE_DATA", data)
}

/// A run in a real jail with this script.
fn run(data: &Path, script: &Path, prompt: &str) -> Finished {
    conjure(data, &["run", "--skills", "fixtures/skills", "--script"]).arg(script).arg(prompt).finish()
}

/// The id in the line that says how to continue.
fn session_of(finished: &Finished) -> String {
    let (_, remainder) = finished.stderr.split_once("conjure sessions resume ").unwrap();
    remainder[..37].to_owned()
}

/// The ids that a list names, in its order.
fn listed(data: &Path) -> Vec<String> {
    let done = conjure(data, &["sessions", "list"]).finish().code(0);
    done.stdout.lines().map(|line| line[..37].to_owned()).collect()
}

/// Without what is different each time.
fn normalized(text: &str, data: &Path) -> String {
    let masked = text.replace(data.to_str().unwrap(), "[DATA]");
    let pieces: Vec<String> = masked.split_inclusive([' ', '\n', '/', '"', '`']).map(piece).collect();
    pieces.concat()
}

fn piece(piece: &str) -> String {
    let word = piece.trim_end_matches([' ', '\n', '/', '"', '`', ',']);
    let rest = &piece[word.len()..];
    let is_id = word.parse::<conjure::SessionId>().is_ok();
    let is_time = word.len() >= 20 && word.ends_with('Z') && word.starts_with("20");
    let is_digest = word.len() == 12 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    match () {
        () if is_digest => format!("[DIGEST]{rest}"),
        () if is_id => format!("[SESSION]{rest}"),
        () if is_time => format!("[TIME]{rest}"),
        () => piece.to_owned(),
    }
}

#[test]
fn a_run_is_listed_shown_and_exported() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let data = data.path().canonicalize().unwrap();
    let done = run(&data, &fixture("scripts/minimal-skill.yaml"), "Greet me.").code(0);
    let id = session_of(&done);
    let list = conjure(&data, &["sessions", "list"]).finish().code(0);
    insta::assert_snapshot!("sessions_list", normalized(&list.stdout, &data));
    let list = conjure(&data, &["sessions", "list", "--format", "json"]).finish().code(0);
    insta::assert_snapshot!("sessions_list_json", normalized(&list.stdout, &data));
    let show_output = conjure(&data, &["sessions", "show", &id[..10]]).finish().code(0);
    insta::assert_snapshot!("sessions_show", normalized(&show_output.stdout, &data));
    let show_output = conjure(&data, &["sessions", "show", &id, "--format", "json"]).finish().code(0);
    let show_output: serde_json::Value = serde_json::from_str(&show_output.stdout).unwrap();
    assert_eq!(show_output["id"], id.as_str());
    assert_eq!(show_output["turn_list"][0]["stop_reason"]["type"], "end_turn");
    assert_eq!(show_output["skills"].as_array().unwrap().len(), 4);

    let events = conjure(&data, &["sessions", "export", &id]).finish().code(0).json_lines();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types[..2], ["user.message", "session.status_running"]);
    assert_eq!(types.last(), Some(&"session.status_idle"));
    assert!(events.iter().all(|event| event["session_id"] == id.as_str()));
    let read = conjure(&data, &["sessions", "export", &id, "--format", "markdown"]).finish().code(0);
    insta::assert_snapshot!("sessions_export_markdown", normalized(&read.stdout, &data));
}

#[test]
fn the_newest_is_first_and_a_page_has_a_cursor() {
    let data = tempfile::tempdir().unwrap();
    let script = script("- content: Done.\n");
    let mut ids: Vec<String> =
        (0..3).map(|_| session_of(&run(data.path(), script.path(), "Go").code(0))).collect();
    ids.reverse();
    assert_eq!(listed(data.path()), ids);
    let first = conjure(data.path(), &["sessions", "list", "--limit", "2"]).finish().code(0);
    let (_, next) = first.stderr.split_once("--after ").unwrap();
    let next = &next[..next.find('`').unwrap()];
    let second = conjure(data.path(), &["sessions", "list", "--after", next]).finish().code(0);
    let both = first.stdout + &second.stdout;
    assert_eq!(both.lines().map(|line| &line[..37]).collect::<Vec<_>>(), ids);
    second.does_not_say("there are more");
    // Another tenant has none of them.
    let other = conjure(data.path(), &["sessions", "list", "--tenant", "acme"]).finish().code(0);
    assert_eq!(other.stdout, "");
    other.says("no sessions");
    conjure(data.path(), &["sessions", "show", &ids[0], "--tenant", "acme"])
        .finish()
        .code(2)
        .says("there is no session");
    conjure(data.path(), &["sessions", "delete", &ids[1]]).finish().code(0).says("is forgotten");
    assert_eq!(listed(data.path()), [ids[0].clone(), ids[2].clone()]);
}

#[test]
fn a_prompt_continues_the_conversation_with_its_files() {
    let data = tempfile::tempdir().unwrap();
    let first = script(
        "- content: [{tool_use: {name: bash_tool, input: {command: echo 42 > kept, description: x}}}]\n\
         - content: It is kept.\n",
    );
    let id = session_of(&run(data.path(), first.path(), "Keep it").code(0));
    let second = script(
        "- expect: {user: {contains: What was it}}\n  \
           content: [{tool_use: {name: bash_tool, input: {command: cat kept, description: x}}}]\n\
         - content: \"{{result:last}}\"\n",
    );
    let resume =
        |arguments: &[&str]| conjure(data.path(), &["sessions", "resume", &id[..12]]).args(arguments);
    let path = second.path().to_str().unwrap();
    let done = resume(&["--script", path, "What was it?"]).finish().code(0);
    // Behind the notice that this is another sandbox.
    assert_eq!(done.stdout.lines().last(), Some("42"));
    assert_eq!(session_of(&done), id);
    // With events on standard output, those of this turn alone.
    let events = resume(&["--script", path, "--json", "What was it?"]).finish().code(0).json_lines();
    assert_eq!(events[0]["type"], "user.message");
    assert_eq!(events.iter().filter(|event| event["type"] == "session.status_idle").count(), 1);
    // No turn is running, and a script is required.
    let idle = resume(&["--script", path]).finish().code(2);
    insta::assert_snapshot!("resume_nothing", normalized(&idle.stderr, data.path()));
    resume(&["Go on"])
        .finish()
        .code(2)
        .says("the session's words came from the script")
        .says("hint: `--script FILE`");
    resume(&["--script", path, " "]).finish().code(2).says("the prompt is empty");
}

#[test]
fn unknown_and_ambiguous_ids_are_reported() {
    let data = tempfile::tempdir().unwrap();
    let script = script("- content: Done.\n");
    run(data.path(), script.path(), "Go").code(0);
    let show_error = |id: &str| {
        let done = conjure(data.path(), &["sessions", "show", id]).finish().code(2);
        normalized(&done.stderr, data.path())
    };
    let unknown = "sesn_00000000000000000000000000000000";
    insta::assert_snapshot!("unknown_ids", [show_error("../x"), show_error(unknown)].concat());
}

#[test]
fn a_session_continues_its_script_and_starts_another() {
    let data = tempfile::tempdir().unwrap();
    let own_script = script("- content: One.\n- content: Two.\n- content: Three.\n- content: Four.\n");
    let other = script("- content: First.\n- content: Second.\n");
    let id = session_of(&run(data.path(), own_script.path(), "Go").code(0));
    let resume = |script: &Path| {
        let resume = conjure(data.path(), &["sessions", "resume", &id, "--script"]).arg(script);
        resume.arg("Go on").finish().code(0).stdout
    };
    assert_eq!(resume(own_script.path()), "Two.\n");
    assert_eq!(resume(other.path()), "First.\n");
    // Call k of the session takes turn k, also when another script was played before.
    assert_eq!(resume(own_script.path()), "Four.\n");
    let over = conjure(data.path(), &["sessions", "resume", &id, "--script"]).arg(own_script.path());
    over.arg("Go on").finish().code(1).says("its end: it has 4 turns, and the model was called for number");
}

/// Neither a model nor a secret is needed for that.
#[test]
fn a_session_is_forked_up_to_a_message() {
    let data = tempfile::tempdir().unwrap();
    let own_script = script("- content: One.\n- content: Two.\n- content: Three.\n");
    let ran =
        conjure(data.path(), &["run", "--env", "API_KEY=hunter2-secret", "--script"]).arg(own_script.path());
    let id = session_of(&ran.arg("First").finish().code(0));
    let resume = |id: &str, text: &str| {
        let resume =
            conjure(data.path(), &["sessions", "resume", id, "--env", "API_KEY=other-secret", "--script"]);
        resume.arg(own_script.path()).arg(text).finish().code(0).stdout
    };
    assert_eq!(resume(&id, "Second"), "Two.\n");
    let user_messages = |id: &str| {
        let events = conjure(data.path(), &["sessions", "export", id]).finish().code(0).json_lines();
        let texts = events.iter().filter(|event| event["type"] == "user.message");
        texts.map(|event| event["content"][0]["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let fork =
        |arguments: &[&str]| conjure(data.path(), &["sessions", "fork", &id[..12]]).args(arguments).finish();
    let complete = fork(&[]).code(0);
    let forked = complete.stdout.trim_end().to_owned();
    assert_eq!(user_messages(&forked), ["First", "Second"]);
    complete.says("its files are copies of those that are there now").says("conjure sessions resume");
    let undone = fork(&["--undo"]).code(0).stdout.trim_end().to_owned();
    assert_eq!(user_messages(&undone), ["First"]);
    assert_eq!(user_messages(fork(&["--at", "1"]).code(0).stdout.trim_end()), Vec::<String>::new());
    assert_eq!(resume(&undone, "Otherwise"), "Two.\n");
    assert_eq!((user_messages(&id).len(), user_messages(&undone).len()), (2, 2));
    fork(&["--at", "2"]).code(2).says("is in the middle of a turn; fork before event 1");
    fork(&["--at", "999"]).code(2).says("sessions export");
    fork(&["--at", "1", "--undo"]).code(2);
    assert_eq!(listed(data.path()).len(), 4);
}

#[test]
fn an_unrecorded_variable_is_required() {
    let data = tempfile::tempdir().unwrap();
    let first = script("- content: Done.\n");
    let ran =
        conjure(data.path(), &["run", "--env", "API_KEY=hunter2-secret", "--env", "PLAIN=seen", "--script"])
            .arg(first.path())
            .arg("Go")
            .finish()
            .code(0);
    let id = session_of(&ran);
    let second = script(
        "- content: [{tool_use: {name: bash_tool, input: {command: 'echo $API_KEY $PLAIN', description: x}}}]\n\
         - content: \"{{result:last}}\"\n",
    );
    let resume =
        || conjure(data.path(), &["sessions", "resume", &id, "--script"]).arg(second.path()).arg("Say it");
    let missing = resume().finish().code(2);
    insta::assert_snapshot!("resume_missing_variable", normalized(&missing.stderr, data.path()));
    let done = resume().args(["--env", "API_KEY"]).env("API_KEY", "hunter2-secret").finish().code(0);
    assert_eq!(done.stdout.trim(), "[REDACTED:API_KEY] seen");
    // Not in the record either.
    let journal = std::fs::read_dir(data.path().join("journal")).unwrap();
    for file in journal.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(7).any(|window| window == b"hunter2"), "{}", file.display());
    }
}

#[test]
fn a_run_killed_in_a_tool_call_resumes_and_repeats_nothing() {
    let data = tempfile::tempdir().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    let first = script(
        "- content: [{tool_use: {name: bash_tool, input: {command: echo done >> effects; touch running; sleep 1000, \
         description: x}}}]\n- content: Not reached.\n",
    );
    let running = conjure(data.path(), &["run", "--workspace"])
        .arg(workspace.path())
        .arg("--script")
        .arg(first.path())
        .arg("Go")
        .start();
    eventually("the tool runs", || workspace.path().join("running").exists());
    let ids = listed(data.path());
    assert_eq!(ids.len(), 1);
    // No other process can take the session in the meantime.
    let second = script(
        "- expect: {results: [{contains: outcome unknown, is_error: true}]}\n  content: \"{{result:last}}\"\n",
    );
    let resume = || conjure(data.path(), &["sessions", "resume", &ids[0], "--script"]).arg(second.path());
    let lease_held =
        resume().finish().code(1).says("another process has the session").says("is leased by `host-");
    lease_held.says("hint: wait until it is done");
    running.signal(Signal::KILL);
    assert_eq!(running.wait().code, None);

    let show_output = conjure(data.path(), &["sessions", "show", &ids[0]]).finish().code(0);
    assert!(show_output.stdout.contains("under way"), "{}", show_output.stdout);
    let done = resume().finish().code(0).says("what was under way continues");
    assert!(done.stdout.contains("outcome unknown"), "{}", done.stdout);
    assert_eq!(std::fs::read_to_string(workspace.path().join("effects")).unwrap(), "done\n");
    let show_output = conjure(data.path(), &["sessions", "show", &ids[0]]).finish().code(0);
    assert!(
        show_output.stdout.contains("the model is done; 2 model calls, 1 tool call\n"),
        "{}",
        show_output.stdout
    );
}

#[test]
fn an_interrupted_run_accepts_another_prompt() {
    let data = tempfile::tempdir().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    let first = script(
        "- content: [{tool_use: {name: bash_tool, input: {command: touch running; sleep 1000, description: x}}}]\n",
    );
    let running = conjure(data.path(), &["run", "--workspace"])
        .arg(workspace.path())
        .arg("--script")
        .arg(first.path())
        .arg("Go")
        .start();
    eventually("the tool runs", || workspace.path().join("running").exists());
    running.signal(Signal::INT);
    let interrupted = running.wait().code(130);
    let second = script("- content: Here I am again.\n");
    let resume = || {
        conjure(data.path(), &["sessions", "resume", &session_of(&interrupted), "--script"])
            .arg(second.path())
    };
    // It was interrupted in good order: nothing is under way.
    resume().finish().code(2).says("nothing was under way");
    let done = resume().arg("Where are you?").finish().code(0);
    assert_eq!(done.stdout, "Here I am again.\n");
}

#[test]
fn concurrent_runs_share_a_data_directory() {
    let data = tempfile::tempdir().unwrap();
    let running: Vec<_> = (0..4)
        .map(|_| {
            conjure(data.path(), &["run", "--skills", "fixtures/skills", "--script"])
                .arg(fixture("scripts/sales-report.yaml"))
                .args(["--file", "fixtures/data/sales.csv", "Which region grew fastest?"])
                .start()
        })
        .collect();
    let ids: std::collections::BTreeSet<String> =
        running.into_iter().map(|running| session_of(&running.wait().code(0))).collect();
    assert_eq!(ids.len(), 4);
    assert_eq!(listed(data.path()).into_iter().collect::<std::collections::BTreeSet<_>>(), ids);
}

#[test]
fn the_help_of_sessions_is_reported() {
    for (name, arguments) in [
        ("sessions_help", &["sessions", "--help"][..]),
        ("sessions_resume_help", &["sessions", "resume", "--help"]),
        ("sessions_fork_help", &["sessions", "fork", "--help"]),
        ("sessions_decide_help", &["sessions", "decide", "--help"]),
    ] {
        insta::assert_snapshot!(name, Conjure::new(arguments).finish().code(0).stdout);
    }
}

//! Tool calls that wait for approval: at a terminal, without one, and decided later.

use std::path::Path;

use crate::support::terminal::Terminal;
use crate::support::{Conjure, Finished, script};

/// A script that appends to `effects`, once for each word, all in one answer, and then says the last result.
fn effects(text: &[&str]) -> tempfile::NamedTempFile {
    let call = |word: &&str| {
        format!(
            "{{tool_use: {{name: bash_tool, input: {{command: 'echo {word} >> effects', description: x}}}}}}"
        )
    };
    let calls: Vec<String> = text.iter().map(call).collect();
    script(&format!("- content: [{}]\n- content: Done.\n", calls.join(", ")))
}

/// One more answer, which is what the last call came to.
fn last_result() -> tempfile::NamedTempFile {
    script("- content: \"So: {{result:last}}.\"\n")
}

/// A data directory and a workspace.
struct Fixture {
    data: tempfile::TempDir,
    workspace: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { data: tempfile::tempdir().unwrap(), workspace: tempfile::tempdir().unwrap() }
    }

    fn run(&self, script: &Path, rules: &[&str]) -> Conjure {
        self.command(&["run"])
            .arg("--workspace")
            .arg(self.workspace.path())
            .arg("--script")
            .arg(script)
            .args(rules)
            .arg("Go")
    }

    fn command(&self, arguments: &[&str]) -> Conjure {
        Conjure::new(arguments).env("CONJURE_DATA", self.data.path())
    }

    fn at_terminal(
        &self,
        terminal: Terminal,
        script: &Path,
        rules: &[&str],
    ) -> crate::support::terminal::AtTerminal {
        let dir = self.workspace.path().to_str().unwrap();
        let arguments =
            [&["run", "--workspace", dir, "--script", script.to_str().unwrap()], rules, &["Go"]].concat();
        terminal.start(arguments, |conjure| conjure.env("CONJURE_DATA", self.data.path()))
    }

    /// The effects of the tools.
    fn effects(&self) -> String {
        let text = std::fs::read_to_string(self.workspace.path().join("effects")).unwrap_or_default();
        // Calls of one answer run together.
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join(" ")
    }

    fn normalized(&self, text: &str) -> String {
        let id = session_of(text);
        text.replace(self.workspace.path().to_str().unwrap(), "[WORKSPACE]")
            .replace(&id, "[SESSION]")
            .lines()
            .filter(|line| !line.starts_with("the model's words"))
            // Warnings about missing limits depend on the machine.
            .map(|line| line.split("; it cannot enforce here").next().unwrap_or(line))
            .map(|line| match line.split_once("s  ").filter(|(time, _)| time.trim().parse::<f64>().is_ok()) {
                Some((_, rest)) => format!("[TIME]  {rest}\n"),
                None => format!("{line}\n"),
            })
            .collect()
    }
}

/// The first id in a text.
fn session_of(text: &str) -> String {
    let start = text.find("sesn_").unwrap();
    text[start..start + 37].to_owned()
}

#[test]
fn a_call_waits_without_a_terminal_and_continues_when_approved() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new();
    let run = fixture.run(effects(&["one"]).path(), &["--ask", "bash_tool"]).finish().code(6);
    insta::assert_snapshot!("waits", fixture.normalized(&run.stderr));
    assert_eq!((run.stdout.as_str(), fixture.effects().as_str()), ("", ""));
    let id = session_of(&run.stderr);

    let show_output = fixture.command(&["sessions", "show", &id]).finish().code(0);
    let (_, waiting) = show_output.stdout.split_once("waiting for a person:\n").unwrap();
    insta::assert_snapshot!("waiting", fixture.normalized(waiting));
    let show_output = fixture.command(&["sessions", "show", &id, "--format", "json"]).finish().code(0);
    let show_output: serde_json::Value = serde_json::from_str(&show_output.stdout).unwrap();
    assert_eq!(show_output["status"], "waiting");
    assert_eq!(show_output["approvals"][0]["tool_use_id"], "toolu_script_1");
    assert_eq!(show_output["approvals"][0]["input"]["command"], "echo one >> effects");

    // Going on without a decision changes nothing.
    let script = last_result();
    let resume = || fixture.command(&["sessions", "resume", &id, "--script"]).arg(script.path());
    resume().finish().code(6).says("conjure sessions decide sesn_").says("toolu_script_1 --allow");
    resume().arg("And now?").finish().code(6);
    let decide =
        fixture.command(&["sessions", "decide", &id[..12], "toolu_s", "--allow", "--json", "--script"]);
    let done = decide.arg(script.path()).finish().code(0);
    let events = done.json_lines();
    assert_eq!(events[0]["type"], "user.tool_confirmation");
    assert_eq!(events[0]["result"], "allow");
    assert_eq!(events.last().unwrap()["stop_reason"]["type"], "end_turn");
    assert_eq!(fixture.effects(), "one");
    let late = fixture
        .command(&["sessions", "decide", &id, "toolu_script_1", "--allow", "--script"])
        .arg(script.path());
    late.finish().code(2).says("no tool call waits for a person in the session");
    let read = fixture.command(&["sessions", "export", &id, "--format", "markdown"]).finish().code(0);
    assert!(read.stdout.contains("*The user's decision on toolu_script_1: allow*"), "{}", read.stdout);
}

#[test]
fn a_denial_and_its_reason_reach_the_model() {
    let fixture = Fixture::new();
    let waiting = fixture.run(effects(&["one"]).path(), &["--ask", "bash_tool", "--json"]).finish().code(6);
    let events = waiting.json_lines();
    let last = &events.last().unwrap()["stop_reason"];
    let action = &last["actions"][0];
    assert_eq!((&last["type"], &action["call_id"]), (&"requires_action".into(), &"toolu_script_1".into()));
    assert_eq!((&action["needs"], &action["event_id"]), (&"approval".into(), &last["event_ids"][0]));
    let call = events.iter().find(|event| event["type"] == "agent.tool_use").unwrap();
    assert_eq!((&call["id"], &call["evaluated_permission"]), (&last["event_ids"][0], &"ask".into()));
    let script = last_result();
    let deny = fixture
        .command(&[
            "sessions",
            "decide",
            &session_of(&waiting.stderr),
            "toolu_script_1",
            "--deny",
            "--reason",
            "not here",
        ])
        .arg("--script")
        .arg(script.path());
    let done = deny.finish().code(0).says("deny toolu_script_1: not here");
    assert_eq!(done.stdout, "So: denied: not here.\n");
    assert_eq!(fixture.effects(), "");
}

#[test]
fn waiting_calls_are_decided_one_by_one() {
    let fixture = Fixture::new();
    let waiting =
        fixture.run(effects(&["one", "two"]).path(), &["--ask", "bash_tool", "--json"]).finish().code(6);
    let events = waiting.json_lines();
    let pending = events.iter().filter(|event| event["stop_reason"]["type"] == "requires_action");
    let pending: Vec<_> =
        pending.map(|event| event["stop_reason"]["event_ids"].as_array().unwrap().len()).collect();
    assert_eq!(pending, [2]);
    let id = session_of(&waiting.stderr);
    let script = last_result();
    let decide = |call: &str, how: &[&str]| {
        fixture
            .command(&["sessions", "decide", &id, call])
            .args(how)
            .arg("--script")
            .arg(script.path())
            .finish()
    };
    decide("toolu_script_", &["--allow"])
        .code(2)
        .says("could be any of 2 tool calls")
        .says("`toolu_script_2`");
    decide("toolu_script_3", &["--allow"])
        .code(2)
        .says("hint: those that wait: `toolu_script_1`, `toolu_script_2`");
    decide("toolu_script_1", &[]).code(2).says("--allow");
    decide("toolu_script_1", &["--allow", "--deny"]).code(2).says("cannot be used with");
    decide("toolu_script_1", &["--allow", "--reason", "x"]).code(2).says("cannot be used with");
    // The other way round than they were asked for.
    decide("toolu_script_2", &["--deny"]).code(6).says("toolu_script_1 --allow");
    assert_eq!(fixture.effects(), "");
    assert!(decide("toolu_script_1", &["--allow"]).code(0).stdout.contains("denied: the user said no"));
    assert_eq!(fixture.effects(), "one");
}

#[test]
fn rules_are_stored_and_later_commands_take_precedence() {
    let fixture = Fixture::new();
    let quiet = script("- content: Hello.\n");
    let done = fixture.run(quiet.path(), &["--allow", "view"]).finish().code(0);
    let id = session_of(&done.stderr);
    let call = effects(&["one"]);
    let resume = |rules: &[&str]| {
        fixture
            .command(&["sessions", "resume", &id, "--script"])
            .arg(call.path())
            .args(rules)
            .arg("Go on")
            .finish()
    };
    resume(&["--allow", "bash_tool"]).code(0);
    assert_eq!(fixture.effects(), "one");
    assert!(
        resume(&["--deny", "bash_tool"])
            .code(0)
            .says("denied: the user denies every use of `bash_tool`")
            .stdout
            .contains("Done")
    );
    resume(&[]).code(6).says("the model wants to use `bash_tool`");
    assert_eq!(fixture.effects(), "one");
}

#[test]
fn invalid_rules_are_usage_errors() {
    let fixture = Fixture::new();
    let script = script("- content: x\n");
    let error = |rules: &[&str]| fixture.run(script.path(), rules).finish().code(2);
    error(&["--ask", "bash"]).says("there are `view`, `bash_tool`, `create_file`, `str_replace`");
    error(&["--ask", "view", "--deny", "view"]).says("`--ask view` and `--deny view` exclude each other");
    let waiting =
        fixture.run(effects(&["one"]).path(), &["--ask", "bash_tool", "--ephemeral"]).finish().code(6);
    waiting.says("hint: run it at a terminal").does_not_say("sessions decide");
}

/// A run at a terminal with this script, which asks for `bash_tool`, and whose person types these answers, each at its prompt.
fn answered(fixture: &Fixture, script: &Path, rules: &[&str], answers: &[&str]) -> Finished {
    let mut running =
        fixture.at_terminal(Terminal::new(), script, &[&["--ask", "bash_tool"], rules].concat());
    for (index, answer) in answers.iter().enumerate() {
        running.shows(" > ", index + 1);
        running.types(answer);
    }
    running.wait()
}

#[test]
fn a_user_at_a_terminal_sees_the_call_and_decides() {
    let fixture = Fixture::new();
    let done =
        answered(&fixture, effects(&["one", "two"]).path(), &[], &["y\n", "n that is enough\n"]).code(0);
    assert_eq!((fixture.effects().as_str(), done.stdout.as_str()), ("one", "Done.\n"));
    let done = done.says("    echo two >> effects\n    description: x\n");
    done.says("deny bash_tool: that is enough");

    // An answer that is not clear decides nothing.
    let fixture = Fixture::new();
    let done = answered(&fixture, effects(&["one"]).path(), &[], &["\n", "yep\n", "n\n"]).code(0);
    assert_eq!((fixture.effects().as_str(), done.stderr.matches(" no, ").count()), ("", 3));
}

/// A script whose answer runs these commands.
fn commands(commands: &[&str]) -> tempfile::NamedTempFile {
    let call = |command: &&str| {
        format!("{{tool_use: {{name: bash_tool, input: {{command: '{command}', description: x}}}}}}")
    };
    let calls: Vec<String> = commands.iter().map(call).collect();
    script(&format!("- content: [{}]\n- content: Done.\n", calls.join(", ")))
}

#[test]
fn a_user_at_a_terminal_allows_a_prefix_for_the_session() {
    let fixture = Fixture::new();
    let asking_script =
        commands(&["touch one", "touch two", "touch three; touch four", "cp one five", "A=b touch six"]);
    // The second is like the first, the third is more than that, the fourth begins otherwise; of the last there is none alike.
    let answers = ["a\n", "n\n", "n\n", "y\n"];
    let done = answered(&fixture, asking_script.path(), &[], &answers).code(0);
    let done = done.says("a: all `bash_tool(touch:*)` in this session >");
    let done = done.says("decided allow bash_tool, and always `bash_tool(touch:*)` in this session");
    let names = |dir: &Path| {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(fixture.workspace.path()), ["one", "six", "two"]);
    let exported = fixture.command(&["sessions", "export", &session_of(&done.stderr)]).finish().code(0);
    let granted: Vec<_> =
        exported.json_lines().into_iter().filter(|event| event["type"] == "session.grant_given").collect();
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0]["grant"], serde_json::json!({"rule": "bash_tool(touch:*)", "scope": "session"}));

    // It holds for as long as the session is there, and speaks of nothing else.
    let id = session_of(&done.stderr);
    let later = |what: &[&str], code| {
        let script = commands(what);
        let resume = fixture.command(&["sessions", "resume", &id, "--script"]).arg(script.path()).arg("More");
        resume.finish().code(code)
    };
    later(&["touch seven"], 0).does_not_say("asks");
    assert_eq!(names(fixture.workspace.path()), ["one", "seven", "six", "two"]);
    later(&["touch eight; touch nine"], 6).says("--allow");
    assert_eq!(names(fixture.workspace.path()), ["one", "seven", "six", "two"]);
}

#[test]
fn a_call_is_allowed_for_the_session_without_a_terminal() {
    let fixture = Fixture::new();
    let waits = fixture
        .run(commands(&["touch one", "A=b touch two*"]).path(), &["--ask", "bash_tool"])
        .finish()
        .code(6);
    let id = session_of(&waits.stderr);
    let script = last_result();
    let decide = |call: &str, how: &[&str]| {
        fixture
            .command(&["sessions", "decide", &id, call])
            .args(how)
            .arg("--script")
            .arg(script.path())
            .finish()
    };
    decide("toolu_script_1", &["--always", "--deny"]).code(2).says("cannot be used with");
    decide("toolu_script_1", &["--always", "--reason", "x"]).code(2).says("cannot be used with");
    decide("toolu_script_2", &["--always"])
        .code(2)
        .says("the tool call `toolu_script_2` stands for no others: no rule says which commands are like it")
        .says("hint: allow it alone: `--allow`");
    decide("toolu_script_1", &["--always", "--json"]).code(6);
    decide("toolu_script_2", &["--allow"]).code(0);
    let read = fixture.command(&["sessions", "export", &id, "--format", "markdown"]).finish().code(0);
    let stdout =
        "*The user's decision on toolu_script_1: allow, and always `bash_tool(touch:*)` in this session*";
    assert!(read.stdout.contains(stdout), "{}", read.stdout);
}

#[test]
fn text_typed_before_the_question_is_ignored() {
    let fixture = Fixture::new();
    let mut terminal = Terminal::new();
    terminal.types("y\n");
    let script = effects(&["one"]);
    let mut running = fixture.at_terminal(terminal, script.path(), &["--ask", "bash_tool"]);
    running.shows(" > ", 1);
    running.types("n\n");
    running.wait().code(0).says("deny bash_tool");
    assert_eq!(fixture.effects(), "");
}

#[test]
fn an_unanswered_question_is_asked_again_later() {
    let fixture = Fixture::new();
    // The end of the input.
    let ended = answered(&fixture, effects(&["one", "two"]).path(), &[], &["y\n", "\x04"]).code(6);
    let ended = ended.says("toolu_script_2 --allow");
    // The approved call has run in the meantime.
    assert_eq!(fixture.effects(), "one");
    let id = session_of(&ended.stderr);
    let script = last_result();
    let arguments = ["sessions", "resume", &id, "--script", script.path().to_str().unwrap()];
    let mut running =
        Terminal::new().start(arguments, |conjure| conjure.env("CONJURE_DATA", fixture.data.path()));
    running.shows(" > ", 1);
    running.types("y\n");
    running.wait().code(0).says("    echo two >> effects").does_not_say("    echo one >> effects");
    assert_eq!(fixture.effects(), "one two");
}

#[test]
fn a_question_can_be_interrupted_or_time_out() {
    let fixture = Fixture::new();
    // As the terminal sends it.
    answered(&fixture, effects(&["one"]).path(), &[], &["\x03"]).code(130);
    answered(&fixture, effects(&["one"]).path(), &["--timeout", "3"], &[])
        .code(3)
        .says("the deadline passed");
    assert_eq!(fixture.effects(), "");
}

#[test]
fn approval_prompts_show_no_secrets() {
    let fixture = Fixture::new();
    let script = script(
        "- content: [{tool_use: {name: bash_tool, input: {command: 'echo hunter2-secret', description: x}}}]\n\
         - content: Done.\n",
    );
    let rules = ["--env", "API_KEY=hunter2-secret"];
    let done =
        answered(&fixture, script.path(), &rules, &["n\n"]).code(0).says("    echo [REDACTED:API_KEY]");
    let id = session_of(&done.does_not_say("hunter2").stderr);

    let waits = fixture
        .run(script.path(), &["--ask", "bash_tool", "--env", "API_KEY=hunter2-secret"])
        .finish()
        .code(6);
    let waiting = session_of(&waits.stderr);
    let show_output = |id: &str, arguments: &[&str]| {
        let show = fixture.command(&["sessions", "show", id, "--env", "API_KEY"]).args(arguments);
        show.env("API_KEY", "hunter2-secret").finish().code(0).stdout
    };
    for text in
        [show_output(&id, &[]), show_output(&waiting, &[]), show_output(&waiting, &["--format", "json"])]
    {
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert!(show_output(&waiting, &[]).contains("echo [REDACTED:API_KEY]"));
}

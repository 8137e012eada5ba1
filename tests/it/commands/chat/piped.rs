//! `conjure chat`: its commands and its output, mostly with piped lines. `terminal` tests a terminal.

use std::path::Path;

use conjure::model::{Script, ScriptFormat};
use conjure_anthropic::fake::FakeMessages;
use rustix::process::Signal;

use crate::support::terminal::{AtTerminal, Terminal};
use crate::support::{Conjure, script};

/// The control sequence at the start of line editing.
pub(crate) const READS_A_LINE: &str = "\x1b[?2004h";

/// A data directory and a workspace.
pub(crate) struct Fixture {
    pub(crate) data: tempfile::TempDir,
    pub(crate) workspace: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self { data: tempfile::tempdir().unwrap(), workspace: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Conjure {
        Conjure::new(arguments).env("CONJURE_DATA", self.data.path())
    }

    /// A chat whose lines come from a pipe.
    pub(crate) fn piped(&self, script: &Path, options: &[&str], lines: impl Into<Vec<u8>>) -> Conjure {
        self.command(&["chat", "--workspace"])
            .arg(self.workspace.path())
            .arg("--script")
            .arg(script)
            .args(options)
            .input(lines)
    }

    /// A chat at a terminal, which shows everything.
    pub(crate) fn at_terminal(
        &self,
        script: &Path,
        options: &[&str],
        with: fn(Conjure) -> Conjure,
    ) -> AtTerminal {
        let dir = self.workspace.path().to_str().unwrap();
        let script = script.to_str().unwrap();
        let arguments = [&["chat", "--workspace", dir, "--script", script], options].concat();
        let conjure = |conjure: Conjure| with(conjure.env("CONJURE_DATA", self.data.path()));
        Terminal::new().with_output().start(arguments, conjure)
    }

    /// The events of the only session.
    pub(crate) fn recorded_events(&self) -> String {
        let listed = self.command(&["sessions", "list", "--format", "json"]).finish().code(0);
        self.command(&["sessions", "export", &session_of(&listed.stdout)]).finish().code(0).stdout
    }

    /// The text without what is another in each run.
    fn normalized(&self, text: &str) -> String {
        let text = text.replace(self.workspace.path().to_str().unwrap(), "[WORKSPACE]");
        let text = match text.find("sesn_") {
            Some(start) => text.replace(&text[start..start + 37], "[SESSION]"),
            None => text,
        };
        text.lines()
            .map(|line| {
                if line.starts_with("the model's words") {
                    "the model's words come from a script"
                } else {
                    line
                }
            })
            // Warnings about missing limits depend on the machine.
            .map(|line| line.split("; it cannot enforce here").next().unwrap_or(line))
            .map(|line| format!("{}\n", without_duration(line)))
            .collect()
    }
}

/// The line of a tool call without its duration.
fn without_duration(line: &str) -> String {
    let words: Vec<String> = line
        .split("  ")
        .map(|part| match part.split_once("s, ") {
            Some((time, rest)) if time.parse::<f64>().is_ok() => format!("[TIME], {rest}"),
            _ if part.starts_with("failed, ") => "failed, [TIME]".to_owned(),
            _ => part.to_owned(),
        })
        .collect();
    words.join("  ")
}

/// The first id in a text.
pub(crate) fn session_of(text: &str) -> String {
    let start = text.find("sesn_").unwrap_or_else(|| panic!("no session is named: {text}"));
    text[start..start + 37].to_owned()
}

/// A tool call of a script.
pub(crate) fn bash(command: &str) -> String {
    format!("{{tool_use: {{name: bash_tool, input: {{command: \"{command}\", description: x}}}}}}")
}

/// Three turns, the second with tool calls, one after the other.
pub(crate) fn three_turns() -> tempfile::NamedTempFile {
    script(&format!(
        "- content: \"Hello.\\nHow can I help?\"\n\
         - content: [{{text: Let me look.}}, {}]\n\
         - content: [{}]\n\
         - content: [{}]\n\
         - content: \"There is {{{{result:last | trim}}}}.\"\n\
         - content: Bye.\n",
        bash("echo one > made.txt; ls"),
        bash("echo gone wrong >&2; exit 3"),
        bash("cat made.txt"),
    ))
}

#[test]
fn a_chat_without_a_model_explains_how_to_configure_one() {
    let done = Conjure::new(["chat"]).finish().code(2);
    assert!(done.stderr.lines().count() < 24, "{}", done.stderr);
    insta::assert_snapshot!("no_model", done.stderr);
    insta::assert_snapshot!("chat_help", Conjure::new(["chat", "--help"]).finish().code(0).stdout);
}

#[test]
fn piped_lines_are_messages_and_stdout_has_only_answers() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new();
    let lines = "Hi\nWhat is here?\n\n   \n/files\n/quit\nnot read\n";
    let done = fixture.piped(three_turns().path(), &[], lines).finish().code(0);
    assert_eq!(done.stdout, "Hello.\nHow can I help?\nLet me look.\nThere is one.\n");
    let settled = fixture.normalized(&done.stderr);
    insta::assert_snapshot!("piped", settled);
    assert!(!done.stderr.contains('\x1b'), "{}", done.stderr);
    // No line is longer than a terminal is wide, but for paths, ids, and what a machine cannot limit.
    let long = settled.lines().filter(|line| line.chars().count() > 80);
    assert_eq!(long.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn parallel_calls_have_a_result_each() {
    let fixture = Fixture::new();
    let calls = [bash("echo one"), bash("echo two >&2; exit 2"), bash("echo three")].join(", ");
    let script = script(&format!("- content: [{calls}]\n- content: Done.\n"));
    let done = fixture.piped(script.path(), &[], "Go\n").finish().code(0);
    let stderr = fixture.normalized(&done.stderr);
    // Whichever ends first.
    for line in [
        "  bash_tool  echo one  [TIME], 4 B\n",
        "  bash_tool  echo two >&2; exit 2  failed, [TIME]\n    two [exit code 2]\n",
        "  bash_tool  echo three  [TIME], 6 B\n",
    ] {
        assert_eq!(stderr.matches(line).count(), 1, "{line}: {stderr}");
    }
}

#[test]
fn chat_commands_show_the_session() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new();
    let dir = tempfile::tempdir().unwrap();
    let (markdown, events) = (dir.path().join("chat.md"), dir.path().join("chat.jsonl"));
    let lines = format!(
        "/help\n/model\n/skills\n/files\nHi\n/export {}\n/export '{}'\n",
        markdown.display(),
        events.display()
    );
    let options = ["--skills", "fixtures/skills"];
    let done = fixture.piped(three_turns().path(), &options, lines.clone()).finish().code(0);
    let stderr = fixture.normalized(&done.stderr).replace(dir.path().to_str().unwrap(), "[DIRECTORY]");
    insta::assert_snapshot!("commands", stderr);
    let text = std::fs::read_to_string(&markdown).unwrap();
    assert!(text.contains("## User\n\nHi\n\n## Model\n\nHello.\nHow can I help?"), "{text}");
    let read = std::fs::read_to_string(&events).unwrap();
    let exported = fixture.command(&["sessions", "export", &session_of(&done.stderr)]).finish().code(0);
    assert!(!read.is_empty() && exported.stdout.starts_with(&read), "{read}");

    // Existing files are not overwritten, which is a failure.
    let second = fixture.piped(three_turns().path(), &options, lines).finish().code(2);
    second.says("exists, and is not overwritten");
    assert_eq!(std::fs::read_to_string(&markdown).unwrap(), text);
}

#[test]
fn an_invalid_line_is_not_sent_and_the_next_one_is() {
    let fixture = Fixture::new();
    let mut lines = b"/nothing here\n/quit now\n\xff\xfe\n".to_vec();
    lines.extend(vec![b'x'; 5 * 1024 * 1024]);
    lines.extend(b"\n /help is a command\nlast line");
    let script = script("- content: One.\n- content: Two.\n");
    let done = fixture.piped(script.path(), &[], lines).finish().code(2);
    let done = done
        .says("error: there is no command `/nothing`\nhint: `/help` lists the commands")
        .says("`/quit` takes nothing after its name")
        .says("a line is not UTF-8 text, and was not sent")
        .says("a line is longer than 4 MiB")
        .does_not_say("panicked");
    assert_eq!(done.stdout, "One.\nTwo.\n");
    let exported = fixture.command(&["sessions", "export", &session_of(&done.stderr)]).finish().code(0);
    let sent: Vec<String> = exported
        .json_lines()
        .iter()
        .filter(|event| event["type"] == "user.message")
        .map(|event| event["content"][0]["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(sent, [" /help is a command", "last line"]);
}

#[test]
fn a_message_of_a_megabyte_is_sent_completely() {
    let fixture = Fixture::new();
    let script = script("- expect: {user: {matches: '^a{1000}'}}\n  content: Long.\n");
    let done = fixture.piped(script.path(), &[], vec![b'a'; 1024 * 1024]).finish().code(0);
    assert_eq!(done.stdout, "Long.\n");
}

#[test]
fn a_chat_without_messages_leaves_no_session() {
    let fixture = Fixture::new();
    for lines in ["", "\n", "/help\n", "/quit\n"] {
        let done = fixture.piped(three_turns().path(), &[], lines).finish().code(0);
        done.does_not_say("--resume");
    }
    fixture.command(&["sessions", "list"]).finish().code(0).says("no sessions");
}

#[test]
fn a_turn_that_fails_does_not_end_the_chat_and_is_its_exit_code() {
    let fixture = Fixture::new();
    let script =
        script("- error: {type: overloaded_error, message: busy}\n- content: Better.\n- content: []\n");
    let done = fixture.piped(script.path(), &[], "One\nTwo\nThree\n").finish().code(1);
    assert_eq!(done.stdout, "Better.\n");
    done.says("error: ").says("busy").says("warning: the model's last answer holds no text");
    let closed = fixture.piped(three_turns().path(), &[], "Hi\nMore\n").without_reader().finish();
    assert_eq!(closed.code(1).stdout, "");
}

#[test]
fn a_piped_chat_asks_no_questions_and_no_line_is_a_reply() {
    let fixture = Fixture::new();
    let script = script(&format!("- content: [{}]\n- content: Done.\n", bash("echo one >> effects")));
    let waits = fixture.piped(script.path(), &["--ask", "bash_tool"], "Go\ny\ny\n").finish().code(6);
    let id = session_of(&waits.stderr);
    waits.says("a call of `bash_tool` waits for a person").says("toolu_script_1 --allow");
    assert!(!fixture.workspace.path().join("effects").exists());

    // A resumed chat asks where there is a terminal.
    let resume = |lines: &str| {
        let resume = fixture.command(&["chat", "--resume", &id, "--script"]).arg(script.path());
        resume.input(lines).finish()
    };
    resume("y\n").code(6).says("--allow");
    assert!(!fixture.workspace.path().join("effects").exists());
    let arguments = ["chat", "--resume", &id, "--script", script.path().to_str().unwrap()];
    let environment = |conjure: Conjure| conjure.env("CONJURE_DATA", fixture.data.path());
    let mut chat = Terminal::new().with_output().start(arguments, environment);
    chat.shows("allow it?", 1);
    chat.types("y\n");
    chat.shows("Done.", 1);
    chat.shows(READS_A_LINE, 2);
    chat.types("\x04");
    chat.wait().code(0);
    assert_eq!(std::fs::read_to_string(fixture.workspace.path().join("effects")).unwrap(), "one\n");
}

#[test]
fn an_attached_file_goes_with_the_next_message() {
    let fixture = Fixture::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("my data.csv");
    std::fs::write(&file, "a,b\n1,2\n").unwrap();
    let script = script(
        "- expect: {user: {contains: 'file://data.csv'}}\n  content: [{tool_use: {name: view, input: {path: 'file://data.csv', \
         description: x}}}]\n- expect: {results: [{contains: '1,2'}]}\n  content: It has 1,2.\n- content: No more.\n",
    );
    let path = file.display();
    let lines =
        format!("/attach {path}.none\n/attach data.csv={path}\n/attach data.csv={path}\nLook\nAgain\n");
    let done = fixture.piped(script.path(), &[], lines).finish().code(2);
    assert_eq!(done.stdout, "It has 1,2.\nNo more.\n");
    let done = done.says("error: `/attach`: ").says("`file://data.csv` goes with your next message");
    let done = done.says("hint: `/attach NAME=PATH` gives it another name");
    let exported = fixture.command(&["sessions", "export", &session_of(&done.stderr)]).finish().code(0);
    let messages: Vec<_> =
        exported.json_lines().into_iter().filter(|event| event["type"] == "user.message").collect();
    assert!(messages[0].to_string().contains("file://data.csv"), "{messages:?}");
    assert!(!messages[1].to_string().contains("file://"), "{messages:?}");
}

#[test]
fn a_chat_resumes_a_session() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new();
    let script = three_turns();
    let done = fixture.piped(script.path(), &[], "Hi\n").finish().code(0);
    let id = session_of(&done.stderr);
    let done = done.says(&format!("`conjure chat --resume {id}` continues this session"));
    assert_eq!(done.stdout, "Hello.\nHow can I help?\n");
    let resume = |options: &[&str]| {
        let resume = fixture.command(&["chat", "--resume", &id[..14]]).args(options);
        resume.input("What is here?\n").finish()
    };
    let done = resume(&["--script", script.path().to_str().unwrap()]).code(0);
    assert_eq!(done.stdout, "Let me look.\nThere is one.\n");
    insta::assert_snapshot!("resumed", fixture.normalized(&done.stderr));

    resume(&[]).code(2).says("hint: `--script FILE` plays a script: its own continues");
    resume(&["--workspace", "."]).code(2).says("cannot be used with");
    let unknown = fixture.command(&["chat", "--resume", "sesn_ffffffffffffffffffffffffffffffff"]);
    unknown.finish().code(2).says("there is no session");
    // It is a session as any other.
    let more = fixture.command(&["sessions", "resume", &id, "--script"]).arg(script.path()).arg("And now?");
    assert_eq!(more.finish().code(0).stdout, "Bye.\n");
}

#[test]
fn another_model_answers_from_the_next_message_on() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // The fake takes the turn whose number is that of the answers before it, whoever gave them.
    let text = ["None", "One", "Two", "Three", "Four", "Five", "Six"];
    let text: String = text
        .iter()
        .map(|word| format!("- {{content: {word} before this., usage: {{input_tokens: 9}}}}\n"))
        .collect();
    let text = format!("version: 1\nturns:\n{text}");
    let text = Script::from_text(&text, ScriptFormat::Yaml, "the fake").unwrap();
    let fake = runtime.block_on(FakeMessages::builder().script(text).start()).unwrap();
    let config = format!(
        "[models.other]\napi = \"messages\"\nmodel = \"claude-other\"\nbase_url = \"{}\"\nkey_env = \"OTHER_KEY\"\n",
        fake.base_url()
    );
    let configured = |conjure: Conjure| {
        std::fs::create_dir(conjure.home().join(".conjure")).unwrap();
        std::fs::write(conjure.home().join(".conjure/config.toml"), &config).unwrap();
        conjure.env("OTHER_KEY", "sk-other-key")
    };
    let fixture = Fixture::new();
    let script = three_turns();
    let lines =
        "Hi\n/model other\nWho are you?\n/model\n/model nobody\n/model script\nWhat is here?\n/model other\n";
    let done = configured(fixture.piped(script.path(), &[], lines)).finish().code(2);
    assert_eq!(done.stdout, "Hello.\nHow can I help?\nOne before this.\nLet me look.\nThere is one.\n");
    assert_eq!(done.stderr.matches("the model is claude-other").count(), 3, "{}", done.stderr);
    let done = done.says("the model `nobody` needs a key").does_not_say("sk-other-key");
    let done = done.says("the price of claude-other is not known").does_not_say("$0.0000");
    // The session keeps the model that it had last.
    let resumed = fixture.command(&["chat", "--resume", &session_of(&done.stderr)]).input("And now?\n");
    assert_eq!(configured(resumed).finish().code(0).stdout, "Six before this.\n");

    let record = fixture.workspace.path().join("recorded.yaml");
    let recorded = fixture.piped(script.path(), &["--record", record.to_str().unwrap()], "/model other\n");
    configured(recorded).finish().code(2).says("`/model`: `--record` records one model alone");
}

/// A service whose answers begin with its name and the number of answers before it.
async fn named_service(name: &str, rest: &str) -> FakeMessages {
    let turns: String = (0..6)
        .map(|before| format!("- {{content: \"{name}{before}{rest}\", usage: {{input_tokens: 9}}}}\n"))
        .collect();
    let script_text = format!("version: 1\nturns:\n{turns}");
    let script_text = Script::from_text(&script_text, ScriptFormat::Yaml, name).unwrap();
    FakeMessages::builder().script(script_text).start().await.unwrap()
}

/// The models `b` and `other`, each of its own service.
fn with_models(conjure: Conjure, [b, other]: [&FakeMessages; 2]) -> Conjure {
    let table = |name: &str, fake: &FakeMessages| {
        let url = fake.base_url();
        let key = name.to_uppercase();
        format!(
            "[models.{name}]\napi = \"messages\"\nmodel = \"claude-{name}\"\nbase_url = \"{url}\"\nkey_env = \"{key}_KEY\"\n"
        )
    };
    std::fs::create_dir(conjure.home().join(".conjure")).unwrap();
    let config = table("b", b) + &table("other", other);
    std::fs::write(conjure.home().join(".conjure/config.toml"), config).unwrap();
    conjure.env("B_KEY", "sk-key-of-b").env("OTHER_KEY", "sk-key-of-other")
}

#[test]
fn after_a_resume_and_an_undo_the_named_model_answers() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let b = runtime.block_on(named_service("b", ""));
    let other = runtime.block_on(named_service("other", " sk-key-of-b"));
    let fixture = Fixture::new();
    let command = |arguments: &[&str]| with_models(fixture.command(arguments), [&b, &other]);
    let first = command(&["run", "--sandbox", "local", "--model", "b", "hi"]).finish().code(0);
    assert_eq!(first.stdout, "b0\n");
    let id = session_of(&first.stderr);

    let lines = "one\n/model b\ntwo\n/undo\n/undo\nthree\n/undo\n/undo\nfour\n";
    let done = command(&["chat", "--resume", &id, "--model", "other"]).input(lines).finish().code(0);
    // The key of a model that does not answer now is not shown either.
    assert_eq!(done.stdout, "other1 [REDACTED:B_KEY]\nb2\nother1 [REDACTED:B_KEY]\nb0\n", "{}", done.stderr);
    // `/model`, the second `/undo`, and the fourth tell another model than before.
    let stderr: Vec<&str> = done
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("the model is claude-")?.split(' ').next())
        .collect();
    assert_eq!(stderr, ["other", "b", "other", "b"], "{}", done.stderr);
    done.says("the price of claude-b, claude-other is not known").does_not_say("sk-key-of");
}

#[test]
fn a_resumed_turn_ends_with_the_new_model_of_the_session() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let script_text = format!("version: 1\nturns:\n- content: [{}]\n", bash("echo one"));
    let script_text = Script::from_text(&script_text, ScriptFormat::Yaml, "b").unwrap();
    let b = runtime.block_on(FakeMessages::builder().script(script_text).start()).unwrap();
    let other = runtime.block_on(named_service("other", ""));
    let fixture = Fixture::new();
    let command = |arguments: &[&str]| with_models(fixture.command(arguments), [&b, &other]);
    let run = ["run", "--sandbox", "local", "--ask", "bash_tool", "--model", "b", "hi"];
    let waits = command(&run).finish().code(6);
    let id = session_of(&waits.stderr);
    let call = waits.stderr.split(" --allow").next().unwrap().split(' ').next_back().unwrap();
    let decide = ["sessions", "decide", &id, call, "--allow", "--model", "other"];
    assert_eq!(command(&decide).finish().code(0).stdout, "other1\n");
    let next = command(&["sessions", "resume", &id, "And now?"]).finish().code(0);
    assert_eq!(next.stdout, "other2\n");
    let exported = fixture.command(&["sessions", "export", &id]).finish().code(0);
    assert_eq!(exported.stdout.matches("session.model_changed").count(), 1, "{}", exported.stdout);
}

#[test]
fn undo_removes_the_last_message_and_keeps_files() {
    let fixture = Fixture::new();
    let script = script(&format!(
        "- content: Hello.\n- content: [{}]\n- content: Made.\n\
         - expect: {{messages: 3, user: {{contains: Something else}}}}\n  content: [{}]\n- content: \"{{{{result:last | trim}}}}.\"\n",
        bash("echo one > made.txt"),
        bash("cat made.txt"),
    ));
    // The workspace is the session's own, and the fork has a copy of it.
    let chat = |arguments: &[&str]| fixture.command(&["chat", "--script"]).arg(script.path()).args(arguments);
    let done = chat(&[]).input("/undo\nHi\nMake it\n/undo\nSomething else\n").finish().code(2);
    assert_eq!(done.stdout, "Hello.\nMade.\none.\n");
    let done = done.says("error: `/undo`: there is no message to take back");
    let done = done.says("the last message and its answer are taken back; files were not undone");
    let ids: Vec<&str> = done.stderr.split("--resume ").skip(1).map(|remainder| &remainder[..37]).collect();
    let [original, fork] = ids[..] else { panic!("two sessions: {}", done.stderr) };
    let read = |id: &str| {
        fixture.command(&["sessions", "export", id, "--format", "markdown"]).finish().code(0).stdout
    };
    let (original, fork) = (read(original), read(fork));
    assert!(original.contains("Make it") && !original.contains("Something else"), "{original}");
    assert!(fork.contains("Something else") && !fork.contains("Make it"), "{fork}");
    assert!(done.stderr.contains("made.txt"), "{}", done.stderr);

    // Of two sessions that nobody keeps, nothing is named.
    let done = chat(&["--ephemeral"]).input("Hi\n/undo\n").finish().code(0);
    done.says("files were not undone").does_not_say("--resume");
}

#[test]
fn a_temporary_chat_prints_no_session() {
    let fixture = Fixture::new();
    let done = fixture.piped(three_turns().path(), &["--ephemeral"], "Hi\n").finish().code(0);
    done.does_not_say("--resume");
    fixture.command(&["sessions", "list"]).finish().code(0).says("no sessions");
}

#[test]
fn a_termination_ends_a_chat_and_its_tools() {
    let fixture = Fixture::new();
    let script = script(&format!("- content: [{}]\n- content: x\n", bash("touch began; sleep 1000")));
    let chat = fixture.piped(script.path(), &[], "Go\nMore\n").start();
    let started = fixture.workspace.path().join("began");
    crate::support::eventually("the tool runs", || started.exists());
    chat.signal(Signal::TERM);
    chat.wait().code(143).says("interrupted").says("--resume");

    let waiting = fixture.command(&["chat", "--script"]).arg(script.path()).with_open_input().start();
    waiting.eventually_says("working in");
    waiting.signal(Signal::INT);
    waiting.wait().code(130);
}

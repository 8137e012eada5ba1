//! `conjure chat` at a terminal: keys, interrupts, approvals, and untrusted text.

use rustix::process::Signal;

use crate::commands::chat::piped::{Fixture, READS_A_LINE, bash, session_of, three_turns};
use crate::support::terminal::Terminal;
use crate::support::{Conjure, script};

#[test]
fn an_interrupt_from_the_keyboard_ends_the_turn_and_not_the_chat() {
    let fixture = Fixture::new();
    let script = script(&format!(
        "- content: [{}]\n- content: Still here.\n- delay_ms: 600000\n  content: Too late.\n- content: Done.\n",
        bash("touch began; sleep 1000")
    ));
    let mut chat = fixture.at_terminal(script.path(), &[], |conjure| conjure);
    chat.shows(READS_A_LINE, 1);
    chat.types("Go\n");
    let started = fixture.workspace.path().join("began");
    crate::support::eventually("the tool runs", || started.exists());
    chat.types("\x03");
    chat.shows("interrupted; what was said so far is kept", 1);
    chat.shows(READS_A_LINE, 2);
    chat.types("Are you there?\n");
    chat.shows("Still here.", 1);
    // The same while the model is waited for.
    chat.shows(READS_A_LINE, 3);
    chat.types("Slowly\n");
    crate::support::eventually("the turn has begun", || fixture.recorded_events().contains("Slowly"));
    chat.types("\x03");
    chat.shows("interrupted; what was said so far is kept", 2);
    chat.shows(READS_A_LINE, 4);
    chat.types("And now?\n");
    chat.shows("Done.", 1);
    chat.shows(READS_A_LINE, 5);
    chat.types("\x04");
    let done = chat.wait().code(0).says("--resume sesn_").does_not_say("panicked");
    assert!(!done.stderr.contains("Too late"));
}

#[test]
fn an_empty_prompt_says_how_to_leave_and_the_second_interrupt_leaves() {
    let fixture = Fixture::new();
    let script = three_turns();
    let mut chat = fixture.at_terminal(script.path(), &[], |conjure| conjure);
    chat.shows(READS_A_LINE, 1);
    // An interrupt in a line discards the line.
    chat.types("not sent\x03");
    chat.shows(READS_A_LINE, 2);
    chat.types("\x03");
    chat.shows("Ctrl-C again leaves, as do Ctrl-D and `/quit`", 1);
    chat.shows(READS_A_LINE, 3);
    // Something else between them.
    chat.types("/model\n");
    chat.shows("the tools are real", 2);
    chat.shows(READS_A_LINE, 4);
    chat.types("\x03");
    chat.shows(READS_A_LINE, 5);
    chat.types("\x03");
    let done = chat.wait().code(130);
    assert_eq!(done.stderr.matches("Ctrl-C again leaves").count(), 2, "{}", done.stderr);
    assert!(!done.stderr.contains("Hello"), "{}", done.stderr);
}

#[test]
fn a_user_edits_a_line_and_recalls_an_earlier_one() {
    let fixture = Fixture::new();
    let script = script(
        "- expect: {user: {matches: '^Hello world$'}}\n  content: First.\n\
         - expect: {user: {matches: '^Hello world$'}}\n  content: Second.\n\
         - expect: {user: {matches: '^one\\ntwo$'}}\n  content: Third.\n",
    );
    let mut chat = fixture.at_terminal(script.path(), &[], |conjure| conjure);
    chat.shows(READS_A_LINE, 1);
    // To the beginning of the line, a character is deleted, to its end.
    chat.types("xHello wor\x01\x1b[3~\x05ld\r");
    chat.shows("First.", 1);
    chat.shows(READS_A_LINE, 2);
    chat.types("\x1b[A\r");
    chat.shows("Second.", 1);
    chat.shows(READS_A_LINE, 3);
    // A pasted text is one message.
    chat.types("\x1b[200~one\rtwo\x1b[201~\r");
    chat.shows("Third.", 1);
    chat.shows(READS_A_LINE, 4);
    // The command is completed.
    chat.types("/qu\t\r");
    chat.wait().code(0);
}

#[test]
fn a_resumed_chat_has_its_history() {
    let fixture = Fixture::new();
    let script = three_turns();
    let done = fixture.piped(script.path(), &[], "Hi\n").finish().code(0);
    let id = session_of(&done.stderr);
    let arguments = ["chat", "--resume", &id, "--script", script.path().to_str().unwrap()];
    let environment = |conjure: Conjure| conjure.env("CONJURE_DATA", fixture.data.path());
    let mut chat = Terminal::new().with_output().start(arguments, environment);
    chat.shows("you said:     Hi", 1);
    chat.shows(READS_A_LINE, 1);
    chat.types("\x1b[A again\r");
    chat.shows("There is one.", 1);
    chat.shows(READS_A_LINE, 2);
    chat.types("\x04");
    chat.wait().code(0);
    let exported = fixture.command(&["sessions", "export", &id]).finish().code(0);
    assert!(exported.stdout.contains("Hi again"), "{}", exported.stdout);
}

#[test]
fn a_user_decides_on_calls_inline() {
    let fixture = Fixture::new();
    let calls =
        [bash("touch one"), bash("touch two"), bash("A=b touch three"), bash("A=b touch four")].join(", ");
    let turns = format!(
        "- content: [{calls}]\n- content: Done.\n- content: [{}]\n- content: Never.\n- content: After.\n",
        bash("A=b touch five")
    );
    let script = script(&turns);
    let mut chat = fixture.at_terminal(script.path(), &["--ask", "bash_tool"], |conjure| conjure);
    chat.shows(READS_A_LINE, 1);
    // Text typed before the question is not a reply.
    chat.types("Go\n");
    chat.shows("a: all `bash_tool(touch:*)` in this session > ", 1);
    chat.shows(READS_A_LINE, 2);
    chat.types("maybe\n");
    chat.shows(READS_A_LINE, 3);
    chat.types("a\n");
    chat.shows(READS_A_LINE, 4);
    chat.types("y\n");
    chat.shows(READS_A_LINE, 5);
    chat.types("n not that one\n");
    chat.shows("Done.", 1);
    let has_file = |name: &str| fixture.workspace.path().join(name).exists();
    assert_eq!(["one", "two", "three", "four"].map(has_file), [true, true, true, false]);
    // A question can be interrupted, which ends the turn.
    chat.shows(READS_A_LINE, 6);
    chat.types("Again\n");
    chat.shows(READS_A_LINE, 7);
    chat.types("\x03");
    chat.shows("interrupted; what was said so far is kept", 1);
    chat.shows(READS_A_LINE, 8);
    chat.types("And now?\n");
    chat.shows("Never.", 1);
    assert!(!has_file("five"));
    // Without a decision the call waits, and the chat ends.
    chat.shows(READS_A_LINE, 9);
    chat.types("\x04");
    let done = chat.wait().code(0);
    done.says("denied: not that one").says("    A=b touch three\n");
}

#[test]
fn an_open_question_waits_in_the_session() {
    let fixture = Fixture::new();
    let script = script(&format!("- content: [{}]\n- content: Done.\n", bash("touch one")));
    let mut chat = fixture.at_terminal(script.path(), &["--ask", "bash_tool"], |conjure| conjure);
    chat.shows(READS_A_LINE, 1);
    chat.types("Go\n");
    chat.shows(READS_A_LINE, 2);
    chat.types("\x04");
    chat.wait().code(6).says("waits for a person").says("--allow` runs it");
}

#[test]
fn a_terminal_without_editing_and_colours_works() {
    let fixture = Fixture::new();
    let script = script(&format!(
        "- content: [{}]\n- content: Done.\n- content: [{}]\n- content: Never.\n",
        bash("touch one"),
        bash("touch began; sleep 1000")
    ));
    let options = ["--ask", "bash_tool"];
    let mut chat = fixture.at_terminal(script.path(), &options, |conjure| conjure.env("TERM", "dumb"));
    chat.shows("\r\n> ", 1);
    chat.types("Go\n");
    chat.shows("in this session > ", 1);
    chat.types("y\n");
    chat.shows("Done.\r\n\r\n> ", 1);
    chat.types("\x03");
    chat.shows("Ctrl-C again leaves", 1);
    chat.types("Again\n");
    chat.shows("all `bash_tool(touch began; sleep 1000)` in this session > ", 0);
    chat.shows("allow it?", 2);
    chat.types("y\n");
    let started = fixture.workspace.path().join("began");
    crate::support::eventually("the tool runs", || started.exists());
    chat.types("\x03");
    chat.shows("interrupted; what was said so far is kept", 1);
    chat.types("\x04");
    let done = chat.wait().code(0);
    assert!(!done.stderr.contains('\x1b'), "{:?}", done.stderr);
    assert!(fixture.workspace.path().join("one").exists());

    let script = three_turns();
    let mut chat = fixture.at_terminal(script.path(), &[], |conjure| conjure.env("NO_COLOR", "1"));
    chat.shows(READS_A_LINE, 1);
    chat.types("Hi\n");
    chat.shows("How can I help?", 1);
    chat.shows(READS_A_LINE, 2);
    chat.types("What?\n");
    chat.shows("There is one.", 1);
    chat.shows(READS_A_LINE, 3);
    chat.types("\x04");
    let done = chat.wait().code(0);
    let colours = ["\x1b[2m", "\x1b[0m", "\x1b[32m", "\x1b[33m", "\x1b[1;31m"];
    assert!(colours.iter().all(|colour| !done.stderr.contains(colour)), "{:?}", done.stderr);
}

#[test]
fn the_terminal_is_restored_after_a_termination_at_the_prompt() {
    let fixture = Fixture::new();
    let script = three_turns();
    let chat = fixture.at_terminal(script.path(), &[], |conjure| conjure);
    chat.shows(READS_A_LINE, 1);
    assert!(!chat.echoes());
    chat.signal(Signal::TERM);
    crate::support::eventually("the terminal is as it was", || chat.echoes());
    chat.wait().code(143).says("\x1b[?2004l");
}

#[test]
fn untrusted_text_does_not_control_the_terminal() {
    /// Forbidden sequences, and their replacements.
    const HOSTILE: [char; 5] = ['\u{9b}', '\u{202e}', '\u{200b}', '\u{e0041}', '\u{feff}'];
    const WORDS: &str = r"a\e[2Jb\u009b2Kc\u202ed\u200be\U000e0041f\ufeffg";
    const SHOWN: &str = r"a\u{1b}[2Jb\u{9b}2Kc\u{202e}d\u{200b}e\u{e0041}f\u{feff}g";
    let fixture = Fixture::new();
    let call = bash(&format!("echo {WORDS}; exit 1"));
    // In one piece, and in as many as there are characters.
    let hostile_script = script(&format!(
        "- pieces: 1\n  content: \"1 {WORDS}\"\n- pieces: 60\n  content: [{{thinking: \"{WORDS}\"}}, {{text: \"2 {WORDS}\"}}, {call}]\n\
         - content: Done.\n"
    ));
    let skills = tempfile::tempdir().unwrap();
    let skill = skills.path().join("greets");
    std::fs::create_dir(&skill).unwrap();
    let text = "---\nname: greets\ndescription: Greets.\u{202e}sdrawkcab\n---\n";
    std::fs::write(skill.join("SKILL.md"), text).unwrap();
    let options = ["--skills", skills.path().to_str().unwrap(), "--ask", "bash_tool"];
    let mut chat = fixture.at_terminal(hostile_script.path(), &options, |conjure| conjure);
    chat.shows(READS_A_LINE, 1);
    chat.types("/skills\n");
    chat.shows("sdrawkcab", 1);
    chat.shows(READS_A_LINE, 2);
    chat.types("Go\n");
    chat.shows(&format!("1 {SHOWN}"), 1);
    chat.shows(READS_A_LINE, 3);
    chat.types("More\n");
    chat.shows(&format!("2 {SHOWN}"), 1);
    chat.shows(&format!("    echo {SHOWN}; exit 1"), 1);
    chat.shows(READS_A_LINE, 4);
    chat.types("y\n");
    chat.shows("Done.", 1);
    chat.shows(READS_A_LINE, 5);
    chat.types("\x04");
    let done = chat.wait().code(0);
    for hostile in HOSTILE {
        assert!(!done.stderr.contains(hostile), "{hostile:?}: {:?}", done.stderr);
    }
    assert!(!done.stderr.contains("\x1b[2J"), "{:?}", done.stderr);
}

#[test]
fn a_secret_is_not_shown() {
    let fixture = Fixture::new();
    let hostile_script = script(&format!(
        "- content: [{{text: The key is hunter2-secret.}}, {}]\n- content: Done.\n",
        bash("echo hunter2-secret")
    ));
    let options = ["--env", "API_KEY=hunter2-secret"];
    let done = fixture.piped(hostile_script.path(), &options, "Go\n").finish().code(0);
    assert_eq!(done.stdout, "The key is [REDACTED:API_KEY].\nDone.\n");
    done.does_not_say("hunter2").says("echo [REDACTED:API_KEY]");
}

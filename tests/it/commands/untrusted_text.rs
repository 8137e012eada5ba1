//! Untrusted text at a terminal neither moves the cursor nor is hidden.

use std::fs;

use crate::support::terminal::Terminal;
use crate::support::{Conjure, script};

/// What a terminal must not get: sequences that begin with ESC or U+009B, what turns text round, what is not seen.
const HOSTILE: [char; 6] = ['\u{1b}', '\u{9b}', '\u{202e}', '\u{200b}', '\u{e0041}', '\u{feff}'];

/// In a script, which is YAML.
const WORDS: &str = r"a\e[2Jb\u009b2Kc\u202ed\u200be\U000e0041f\ufeffg";

/// The same as a terminal shows it.
const SHOWN: &str = r"a\u{1b}[2Jb\u{9b}2Kc\u{202e}d\u{200b}e\u{e0041}f\u{feff}g";

#[test]
fn stored_text_is_shown_escaped_and_exported_verbatim() {
    let data = tempfile::tempdir().unwrap();
    let hostile_script = script(&format!(
        "- content: [{{tool_use: {{name: bash_tool, input: {{command: \"printf 'X%s' '{WORDS}'\", description: x}}}}}}]\n\
         - content: \"{WORDS}\"\n"
    ));
    let run = Conjure::new(["run", "--script"])
        .arg(hostile_script.path())
        .arg("Go")
        .env("CONJURE_DATA", data.path());
    let done = run.finish().code(0);
    assert!(HOSTILE.iter().all(|hostile| done.stdout.contains(*hostile)), "byte for byte to a pipe");
    let (_, remainder) = done.stderr.split_once("conjure sessions resume ").unwrap();
    let id = &remainder[..37];
    for arguments in [
        &["sessions", "show", id][..],
        &["sessions", "export", id, "--format", "markdown"],
        &["sessions", "export", id, "--format", "jsonl"],
    ] {
        let displayed = Terminal::new()
            .with_output()
            .start(arguments, |conjure| conjure.env("CONJURE_DATA", data.path()))
            .wait();
        for hostile in HOSTILE {
            assert!(!displayed.stderr.contains(hostile), "{arguments:?} {hostile:?}: {}", displayed.stderr);
        }
    }
    let export = ["sessions", "export", id, "--format", "markdown"];
    let at_terminal = Terminal::new()
        .with_output()
        .start(export, |conjure| conjure.env("CONJURE_DATA", data.path()))
        .wait();
    assert!(at_terminal.stderr.contains(SHOWN), "{}", at_terminal.stderr);
    let piped = Conjure::new(export).env("CONJURE_DATA", data.path()).finish().code(0);
    assert!(HOSTILE.iter().all(|hostile| piped.stdout.contains(*hostile)));
}

#[test]
fn an_approval_prompt_shows_invisible_characters() {
    let data = tempfile::tempdir().unwrap();
    let hostile_script = script(&format!(
        "- content: [{{tool_use: {{name: bash_tool, input: {{command: \"echo {WORDS}\", description: x}}}}}}]\n\
         - content: Done.\n"
    ));
    let arguments = ["run", "--ask", "bash_tool", "--script", hostile_script.path().to_str().unwrap(), "Go"];
    let mut run = Terminal::new().start(arguments, |conjure| conjure.env("CONJURE_DATA", data.path()));
    run.shows(&format!("echo {SHOWN}"), 1);
    run.shows("allow it?", 1);
    run.types("n\n");
    let done = run.wait();
    for hostile in &HOSTILE[1..] {
        assert!(!done.stderr.contains(*hostile), "{hostile:?}: {}", done.stderr);
    }
}

#[test]
fn models_get_no_description_that_users_cannot_see() {
    let dir = tempfile::tempdir().unwrap();
    let skill = dir.path().join("greets");
    fs::create_dir(&skill).unwrap();
    let description = "Greets.\u{e0049}\u{e0067} \u{202e}sdrawkcab\u{2069} می\u{200c}خواهم";
    fs::write(skill.join("SKILL.md"), format!("---\nname: greets\ndescription: {description}\n---\n"))
        .unwrap();
    let path = skill.to_str().unwrap();
    let stdout = Conjure::new(["skills", "prompt", path]).finish().code(0).stdout;
    assert!(stdout.contains("<description>\nGreets. sdrawkcab می\u{200c}خواهم\n</description>"), "{stdout}");
    let valid = Conjure::new(["skills", "validate", path]).finish().code(0);
    valid.says("such as U+E0049; models are told it without them");
    let scripted = script("- expect: {system: {contains: 'Greets. sdrawkcab'}}\n  content: Done.\n");
    let run = Conjure::new(["run", "--skills"]).arg(dir.path()).arg("--script").arg(scripted.path());
    run.arg("Go").finish().code(0).says("[description-deceptive]");
}

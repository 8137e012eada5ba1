use std::fs::{self, File};
use std::path::Path;

use tempfile::tempdir;

use super::refused;
use crate::scripted::{Script, ScriptError, ScriptFormat};

fn check(text: &str, expected: &[&str]) {
    let message = refused(text);
    for part in expected {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }
}

fn error_of(path: &Path) -> ScriptError {
    Script::from_file(path).unwrap_err()
}

#[test]
fn an_invalid_script_path_is_described() {
    let dir = tempdir().unwrap();
    let missing = dir.path().join("missing.yaml");
    assert!(matches!(error_of(&missing), ScriptError::Read { .. }));
    assert!(error_of(&missing).to_string().contains("missing.yaml"));
    assert!(matches!(error_of(dir.path()), ScriptError::NotAFile { .. }));
    assert!(matches!(error_of(Path::new("/dev/zero")), ScriptError::NotAFile { .. }));
    let other = dir.path().join("script.txt");
    fs::write(&other, "version: 1").unwrap();
    assert!(matches!(error_of(&other), ScriptError::UnknownFormat { .. }));
    let latin = dir.path().join("latin.yaml");
    fs::write(&latin, b"version: 1\nname: caf\xe9\n").unwrap();
    assert!(matches!(error_of(&latin), ScriptError::NotUtf8 { offset: 20, .. }));
}

#[test]
fn a_huge_file_is_rejected_without_reading_it_completely() {
    let dir = tempdir().unwrap();
    let huge = dir.path().join("huge.yaml");
    File::create(&huge).unwrap().set_len(100 << 20).unwrap();
    assert!(matches!(error_of(&huge), ScriptError::TooLarge { .. }));
    for format in [ScriptFormat::Yaml, ScriptFormat::Json] {
        let text = " ".repeat(format.max_bytes() + 1);
        let error = Script::from_text(&text, format, "x").unwrap_err();
        assert!(matches!(error, ScriptError::TooLarge { limit, .. } if limit == format.max_bytes()));
        assert!(!matches!(Script::from_text(&text[1..], format, "x"), Err(ScriptError::TooLarge { .. })));
    }
}

#[test]
fn invalid_yaml_and_invalid_scripts_are_rejected() {
    check("{", &["test.yaml", "line"]);
    check("", &["test.yaml"]);
    check("just words", &["a script with `version` and `turns`"]);
    check("[1, 2]", &["a script with `version` and `turns`"]);
    check("version: 1", &["missing field `turns`"]);
    check("version: 1\nturns: 5", &["a list of turns"]);
    check("version: 1\nturns: []\nname: a\nname: b", &["duplicate"]);
    check("turns: []", &["`version` is missing", "version: 1"]);
    check("version: one\nturns: []", &["version"]);
    check("version: 1\nturns: []\n---\nversion: 1", &["more than one document"]);
}

#[test]
fn another_version_is_reported_even_with_unknown_fields() {
    check("version: 2\nloops: {}\nturns: []", &["version 2", "reads version 1", "update this program"]);
    check("version: 0\nturns: []", &["version 0", "write `version: 1`"]);
}

#[test]
fn a_mistake_names_turn_field_line_and_column() {
    let head = "version: 1\nturns:\n  - content: fine\n";
    let at = |turn: &str| format!("{head}{turn}");
    check(
        &at("  - content:\n      - tool_use: {nme: view}"),
        &["wrong: turn 2: content[0].tool_use: unknown field `nme`", "`name`", "line 5"],
    );
    check(&at("  - contents: x"), &["turn 2", "unknown field `contents`", "line 4 column 5"]);
    check(&at("  - {}"), &["turn 2", "needs `content` or `error`", "line 4"]);
    check(&at("  - content: [{text: a, raw: '{}'}]"), &["exactly one of `text`"]);
    check(&at("  - content: [{}]"), &["exactly one of `text`"]);
    check(&at("  - content: [{text: a, signature: b}]"), &["exactly one of `text`"]);
    check(&at("  - content: ''"), &["must not be empty", "raw"]);
    check(&at("  - content: 7"), &["integer `7`", "a text or a list of blocks"]);
    check(&at("  - content: [{raw: 'nonsense'}]"), &["`raw` is not a content block"]);
    check(&at("  - content: [{tool_use: {name: ''}}]"), &["must not be empty"]);
    check(&at("  - content: a\n    pieces: 0"), &["`pieces` must lie between"]);
    check(&at("  - content: a\n    delay_ms: -1"), &["delay_ms"]);
    check(&at("  - content: a\n    usage: {tokens: 5}"), &["unknown field `tokens`"]);
    check(&at("  - content: a\n    sent: sha256:12"), &["is not a digest"]);
    check(&at("  - content: a\n    error: {type: timeout}"), &["without `after_pieces`"]);
    check(&at("  - error: {type: overload_error}"), &["`overload_error` is not a type of error"]);
    check(&at("  - error: {type: timeout}\n    cut_after: 1"), &["exclude each other"]);
    check(&at("  - content: a\n    expect: {user: {contain: b}}"), &["unknown field `contain`"]);
    check(&at("  - content: a\n    expect: {user: {matches: '('}}"), &["`(` is not a regular expression"]);
    check(
        &at("  - content: a\n    expect: {user: {matches: '(a{500}){500}'}}"),
        &["is not a regular expression"],
    );
    check(&at("  - content: [{tool_use: {name: a, input: {k: 1, k: 2}}}]"), &["`k`", "duplicated"]);
    check(&at("  - content: [{tool_use: {name: a, input: .nan}}]"), &["JSON has no such number"]);
    check(&at("  - content: !tag x"), &["without tags"]);
}

#[test]
fn a_mistake_in_json_names_turn_and_line() {
    let text = "{\"version\": 1, \"turns\": [\n{\"content\": \"a\"},\n{\"content\": [{\"txt\": \"b\"}]}]}";
    let message = Script::from_text(text, ScriptFormat::Json, "s.json").unwrap_err().to_string();
    for part in ["s.json", "turn 2", "unknown field `txt`", "line 3"] {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }
    let trailing = "{\"version\": 1, \"turns\": []} x";
    assert!(Script::from_text(trailing, ScriptFormat::Json, "s.json").is_err());
}

#[test]
fn call_ids_are_unique() {
    let calls = |first: &str, second: &str| {
        format!(
            "version: 1\nturns:\n- content: [{{tool_use: {{name: a{first}}}}}]\n- content: [{{tool_use: {{name: a{second}}}}}]"
        )
    };
    check(&calls(", id: x", ", id: x"), &["turn 2", "content[0]", "`x`", "turn 1"]);
    check(&calls(", id: toolu_script_2", ""), &["turn 2", "toolu_script_2"]);
    assert!(Script::from_text(&calls("", ""), ScriptFormat::Yaml, "x").is_ok());
}

#[test]
fn aliases_cannot_expand_a_text_beyond_the_limit() {
    let aliases = "*a, ".repeat(1000);
    let text = format!("version: 1\nname: &a {}\nturns: [{{content: [{aliases}]}}]", "x".repeat(1 << 19));
    check(&text, &["stands for more than"]);
}

#[test]
fn too_many_turns_blocks_or_nested_lists_are_refused() {
    let turns = format!("version: 1\nturns: [{}]", "{content: a},".repeat(10_001));
    check(&turns, &["10000 turns at most"]);
    let blocks = format!("version: 1\nturns: [{{content: [{}]}}]", "a,".repeat(1001));
    check(&blocks, &["turn 1", "1000 blocks at most"]);
    let deep = format!("version: 1\nturns: {}{}", "[".repeat(10_000), "]".repeat(10_000));
    check(&deep, &["recursion limit"]);
}

#[test]
fn a_byte_order_mark_is_accepted() {
    assert!(Script::from_text("\u{feff}version: 1\nturns: []", ScriptFormat::Yaml, "x").is_ok());
}

use proptest::prelude::*;

use super::read;
use crate::yaml::node::{Node, Value};

/// The tree in one line: `{k: v}`, `[v]`, texts in Rust's quotes.
fn show(node: &Node) -> String {
    match &node.value {
        Value::Scalar(text) => format!("{text:?}"),
        Value::Sequence(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Mapping(entries) => {
            let entries: Vec<_> =
                entries.iter().map(|(key, _, value)| format!("{key}: {}", show(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

fn check(text: &str, expected: &str) {
    let shown = match read(text) {
        Ok(node) => show(&node),
        Err(error) => format!("{}:{}: {}", error.mark.line, error.mark.column, error.message),
    };
    assert_eq!(shown, expected, "{text:?}");
}

#[test]
fn scalars_are_text_as_written() {
    check("a: 1.0\nb: true\nc: ~\nd:\ne: 0x1F\n", r#"{a: "1.0", b: "true", c: "~", d: "", e: "0x1F"}"#);
    check("a: b#c # d\nb: x]\nc: -x\nd: a:b", r#"{a: "b#c", b: "x]", c: "-x", d: "a:b"}"#);
}

#[test]
fn plain_and_quoted_texts_fold_their_lines() {
    check("a: b\n  c\n\n  d\ne: f", r#"{a: "b c\nd", e: "f"}"#);
    check("a: 'it''s\n  so'\nb: \"x\\ty\\\n  z\\u00e9\"", r#"{a: "it's so", b: "x\tyzé"}"#);
}

#[test]
fn block_scalars_keep_fold_and_chomp() {
    check("a: |\n  x\n   y\n\n  z\n\nb: c", r#"{a: "x\n y\n\nz\n", b: "c"}"#);
    check("a: >-\n  x\n  y\n\n  z\n   more\n  end\nb: c", r#"{a: "x y\nz\n more\nend", b: "c"}"#);
    check("a: |+ # comment\n  x\n\n", r#"{a: "x\n\n"}"#);
    check("a: |2\n   x\n", r#"{a: " x\n"}"#);
}

#[test]
fn collections_nest_by_indentation() {
    check("a:\n- b\n- c\nd:\n  - e: f\n    g: h\n  -\n", r#"{a: ["b", "c"], d: [{e: "f", g: "h"}, ""]}"#);
    check("? a\n: b\n: c", r#"{a: "b", : "c"}"#);
    check("", r#""""#);
    check("x", r#""x""#);
}

#[test]
fn forbidden_yaml_is_an_error_with_its_position() {
    check("a: b\na: c", "2:1: the key `a` is duplicated");
    check("a: [b]", "1:4: flow collections are not allowed: write one entry a line, or quote the text");
    check("a: &b c", "1:4: anchors are not allowed: quote the text");
    check("a: *b", "1:4: aliases are not allowed: quote the text");
    check("a: !!str b", "1:4: tags are not allowed: quote the text");
    check("a: b\tc", "1:5: a tab cannot begin a value: quote it");
    check("a: b: c", "1:5: a second `: ` is not allowed here: quote the text");
    check("a: 'b", "1:4: the quoted text is not closed");
    check("a: b\nc", "2:1: expected `key: value`, found no `: ` on this line");
    check("<<:\n  a: b", "1:1: merge keys are not allowed: quote the key");
    check("a:\n  b: c\nd:\n    e: f", "4:5: indented otherwise than the mapping of an earlier key");
    check("a: b\n...\nc: d", "3:1: a key is not allowed here: check the indentation");
    check("%YAML 1.2\na: b", "1:1: directives are not allowed");
    check("a: \u{7}", "1:4: the character U+0007 is not allowed");
    check(&"- ".repeat(100_000), "1:129: nested deeper than 64 levels");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text: String) {
        let _ = read(&text);
    }

    #[test]
    fn any_text_of_yaml_characters_is_read_or_refused(text in r#"[-a:?'"|>#\\ \n\t0-9+\u{85}\u{2028}\u{feff}.]{0,60}"#) {
        let _ = read(&text);
    }

    #[test]
    fn quoted_texts_round_trip(text in "[^\0-\u{1f}\u{7f}-\u{9f}\u{2028}\u{2029}\u{fffe}\u{ffff}]{0,40}") {
        let single = format!("a: '{}'", text.replace('\'', "''"));
        let double = format!("a: \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        for yaml in [single, double] {
            let node = read(&yaml).unwrap();
            prop_assert_eq!(show(&node), format!("{{a: {text:?}}}"));
        }
    }
}

//! Python's `jsonschema`, which knows all of the standard, says the same of generated schemas and values. The interpreter is
//! `CONJURE_ORACLE_PYTHON`, else `python3`. Without `jsonschema` in it the test says so and passes, unless
//! `CONJURE_REQUIRE_ORACLES=1`.

use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::*;

const CASES: usize = 4000;

const SCRIPT: &str = r#"
import json, sys
from jsonschema import Draft202012Validator
for line in sys.stdin:
    schema, value = json.loads(line)
    Draft202012Validator.check_schema(schema)
    print("valid" if Draft202012Validator(schema).is_valid(value) else "invalid")
"#;

/// Patterns that mean the same to every reader of them.
const PATTERNS: [&str; 8] = ["a", "^a", "b$", "^[a-c]*$", "^a{1,2}$", "x|^b", r"[0-9]{2}", "^(ab)+c?$"];

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-4_i64..5).prop_map(Value::from),
        (-8_i64..9).prop_map(|half| json!(half as f64 / 2.0)),
        "[abcx01]{0,4}".prop_map(Value::from),
        Just(json!(i64::MIN)),
        Just(json!(u64::MAX)),
        Just(json!(9_007_199_254_740_993_i64)),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn keyword(
    inner: impl Strategy<Value = Value> + Clone + 'static,
) -> impl Strategy<Value = (&'static str, Value)> {
    let kinds = ValueType::ALL.map(ValueType::as_str);
    let number = || (-4_i64..5).prop_map(|half| json!(half as f64 / 2.0)).boxed();
    prop_oneof![
        3 => proptest::sample::select(kinds.to_vec()).prop_map(|kind| ("type", json!(kind))),
        1 => proptest::sample::select(&PATTERNS[..]).prop_map(|pattern| ("pattern", json!(pattern))),
        1 => number().prop_map(|bound| ("minimum", bound)),
        1 => (1_i64..5).prop_map(|bound| ("maximum", json!(bound + 2))),
        1 => proptest::collection::vec(value(), 1..4).prop_map(|values| ("enum", json!(values))),
        2 => inner.clone().prop_map(|schema| ("items", schema)),
        2 => proptest::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| ("properties", json!(map))),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    let keywords = |inner: BoxedStrategy<Value>| {
        proptest::collection::vec(keyword(inner), 0..3).prop_map(|keywords| {
            Value::Object(keywords.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        })
    };
    Just(json!({})).prop_recursive(3, 16, 4, move |inner| keywords(inner.boxed()))
}

#[test]
fn the_standard_says_the_same() {
    let Some(python) = python() else { return };
    let mut runner = TestRunner::deterministic();
    let cases: Vec<(Value, Value)> =
        (0..CASES).map(|_| (schema(), value()).new_tree(&mut runner).unwrap().current()).collect();
    let mut oracle =
        command(&python).args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = oracle.stdin.take().unwrap();
    let lines: String = cases.iter().map(|(schema, value)| format!("{}\n", json!([schema, value]))).collect();
    let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let said = oracle.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let verdicts: Vec<bool> = said.lines().map(|line| line == "valid").collect();
    assert_eq!(verdicts.len(), cases.len());
    for ((schema, value), valid) in cases.iter().zip(&verdicts) {
        let mut problems = Vec::new();
        let ours = Schema::read(schema, &mut problems);
        // Only a maximum below a minimum is refused here and not there.
        if problems.is_empty() {
            assert_eq!(ours.check(value, Disclosure::Shown).is_empty(), *valid, "{schema} and {value}");
        }
    }
    let valid = verdicts.iter().filter(|valid| **valid).count();
    assert!(valid > CASES / 10 && valid < CASES * 9 / 10, "{valid} of {CASES} are valid, which tells little");
}

#[expect(clippy::disallowed_methods, reason = "a test asks which oracle there is")]
fn python() -> Option<String> {
    let python = std::env::var("CONJURE_ORACLE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let imported = command(&python).args(["-c", "import jsonschema"]).output();
    if imported.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let message =
        format!("`{python}` has no `jsonschema`: install PyPI `jsonschema` and set CONJURE_ORACLE_PYTHON");
    assert!(std::env::var("CONJURE_REQUIRE_ORACLES").as_deref() != Ok("1"), "{message}");
    eprintln!("SKIPPED: {message}");
    None
}

#[expect(clippy::disallowed_methods, reason = "a test starts its oracle")]
fn command(program: &str) -> Command {
    Command::new(program)
}

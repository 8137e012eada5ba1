use serde_json::{Value, json};

use super::*;

/// The schema, which must be without problems.
fn schema(value: Value) -> Schema {
    let mut problems = Vec::new();
    let schema = Schema::read(&value, &mut problems);
    assert_eq!(problems, [], "{value}");
    schema
}

/// What is wrong with a value.
fn found(of: Value, value: Value) -> Vec<String> {
    schema(of).check(&value, Disclosure::Shown).iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check(of: Value, good: &[Value], bad: &[Value]) {
    for value in good {
        assert_eq!(found(of.clone(), value.clone()), [""; 0], "{of} and {value}");
    }
    for value in bad {
        assert_ne!(found(of.clone(), value.clone()), [""; 0], "{of} and {value}");
    }
}

#[test]
fn every_keyword_means_what_the_standard_says() {
    check(json!({}), &[json!(null), json!(1), json!([])], &[]);
    check(json!({"type": "string"}), &[json!(""), json!("a")], &[json!(1), json!(null), json!(["a"])]);
    check(
        json!({"type": "integer"}),
        &[json!(1), json!(1.0), json!(-3), json!(u64::MAX)],
        &[json!(1.5), json!("1")],
    );
    check(json!({"type": "number"}), &[json!(1), json!(1.5)], &[json!("1"), json!(true)]);
    check(json!({"type": "boolean"}), &[json!(true)], &[json!(0), json!("true")]);
    check(
        json!({"type": "array", "items": {"type": "string"}}),
        &[json!([]), json!(["a"])],
        &[json!(["a", 1]), json!({})],
    );
    check(
        json!({"type": "object", "properties": {"a": {"type": "integer"}}}),
        &[json!({}), json!({"a": 1, "b": "x"})],
        &[json!({"a": "1"}), json!([])],
    );
    check(json!({"pattern": "b"}), &[json!("abc"), json!(1)], &[json!("ac")]);
    check(
        json!({"pattern": r"^\d{4}-\d{2}$"}),
        &[json!("2025-01")],
        &[json!("x2025-01"), json!("２０２５-01")],
    );
    check(json!({"minimum": 2, "maximum": 3}), &[json!(2), json!(3.0), json!("x")], &[json!(1.9), json!(4)]);
    check(json!({"minimum": 0.5}), &[json!(1), json!(u64::MAX)], &[json!(0), json!(i64::MIN)]);
    check(json!({"maximum": 1e300}), &[json!(u64::MAX), json!(1e299)], &[json!(1e301)]);
    check(
        json!({"enum": [1, "a", null, [1.0]]}),
        &[json!(1.0), json!("a"), json!(null), json!([1])],
        &[json!(2), json!("A")],
    );
    check(
        json!({"minimum": 9_007_199_254_740_993_u64}),
        &[json!(9_007_199_254_740_993_u64)],
        &[json!(9_007_199_254_740_992.0)],
    );
}

#[test]
fn a_mismatch_names_location_value_and_expectation() {
    let of = json!({"type": "object", "properties": {"list": {"items": {"type": "integer", "maximum": 3}}, "a/b": {"enum": ["x", "y"]}}});
    assert_eq!(
        found(of.clone(), json!({"list": [1, "two", 9], "a/b": "z"})),
        [
            "at `/list/1`: expected an integer, found \"two\"",
            "at `/list/2`: expected a number of at most 3, found 9",
            "at `/a~1b`: expected one of \"x\", \"y\", found \"z\"",
        ]
    );
    assert_eq!(
        found(json!({"type": "integer"}), json!("a".repeat(100)))[0].chars().count(),
        "expected an integer, found ".len() + 61
    );
    let many = json!(vec!["x"; 1000]);
    assert_eq!(found(json!({"items": {"type": "integer"}}), many).len(), 20);
}

#[test]
fn a_withheld_value_is_not_in_the_message() {
    let of = schema(
        json!({"type": "object", "properties": {"key": {"pattern": "^x$"}, "n": {"maximum": 1}, "t": {"type": "array"}}}),
    );
    let value = json!({"key": "hunter2", "n": 12345, "t": "hunter3"});
    let reported: Vec<_> = of.check(&value, Disclosure::Withheld).iter().map(ToString::to_string).collect();
    assert_eq!(
        reported,
        [
            "at `/key`: expected a text that matches `^x$`, found a string",
            "at `/n`: expected a number of at most 1, found a number",
            "at `/t`: expected an array, found a string",
        ]
    );
}

#[test]
fn defaults_are_filled_in_at_every_depth() {
    let of = schema(json!({
        "type": "object",
        "properties": {
            "a": {"type": "integer", "default": 1},
            "b": {"type": "object", "properties": {"c": {"default": "x"}}, "default": {}},
            "list": {"items": {"properties": {"d": {"default": true}}}},
            "e": {},
        },
    }));
    let mut value = json!({"a": 5, "list": [{}, {"d": false}, 3]});
    of.fill_in(&mut value);
    assert_eq!(value, json!({"a": 5, "b": {"c": "x"}, "list": [{"d": true}, {"d": false}, 3]}));
}

#[test]
fn a_text_of_a_command_line_is_read_as_the_schema_says() {
    let value = |of: Value, text: &str| schema(of).value_of_text(text);
    assert_eq!(value(json!({}), "1"), json!("1"));
    assert_eq!(value(json!({"type": "string"}), "true"), json!("true"));
    assert_eq!(value(json!({"type": "integer"}), "42"), json!(42));
    assert_eq!(value(json!({"type": "array"}), "[1, 2]"), json!([1, 2]));
    assert_eq!(value(json!({"type": "boolean"}), "yes"), json!("yes"));
}

#[test]
fn an_invalid_schema_is_reported() {
    let problems = |value: Value| {
        let mut problems = Vec::new();
        Schema::read(&value, &mut problems);
        problems.into_iter().map(|problem| (problem.path.join("/"), problem.is_warning)).collect::<Vec<_>>()
    };
    let error = |path: &str| vec![(path.to_owned(), false)];
    for (value, path) in [
        (json!("string"), ""),
        (json!({"type": "date"}), "type"),
        (json!({"type": ["string", "null"]}), "type"),
        (json!({"pattern": "("}), "pattern"),
        (json!({"pattern": 1}), "pattern"),
        (json!({"minimum": "1"}), "minimum"),
        (json!({"enum": []}), "enum"),
        (json!({"properties": []}), "properties"),
        (json!({"properties": {"a": {"type": 1}}}), "properties/a/type"),
        (json!({"items": {"type": "x"}}), "items/type"),
        (json!({"minimum": 2, "maximum": 1}), ""),
        (json!({"type": "integer", "default": "1"}), "default"),
    ] {
        assert_eq!(problems(value.clone()), error(path), "{value}");
    }
    assert_eq!(problems(json!({"minLength": 1, "description": "d"})), [("minLength".to_owned(), true)]);
}

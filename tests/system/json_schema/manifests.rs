//! Compares the schemas of manifests with a complete JSON Schema validator, on generated schemas and values.

use std::cell::Cell;

use conjure_skill::{Disclosure, Manifest, ValueType};
use jsonschema::draft202012;
use proptest::prelude::*;
use serde_json::{Value, json};

const CASES: u32 = 4000;

/// Patterns with the same meaning for every validator.
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
fn a_complete_validator_agrees() {
    let (valid, invalid) = (Cell::new(0_u32), Cell::new(0_u32));
    let cases = ProptestConfig::with_cases(CASES);
    proptest!(cases, |(schema in schema(), value in value())| {
        prop_assert!(draft202012::meta::is_valid(&schema), "{}", schema);
        // JSON is YAML.
        let inputs = json!({"required": [{"name": "value", "schema": schema}]});
        let actual = Manifest::parse(&json!({"manifest_version": "1.0", "inputs": inputs}).to_string());
        // Only a maximum below a minimum is refused here but not there.
        if let Ok(actual) = actual && actual.diagnostics.is_empty() {
            let manifest = actual.manifest.unwrap();
            let problems = manifest.input("value").unwrap().schema().check(&value, Disclosure::Shown);
            let is_valid = draft202012::is_valid(&schema, &value);
            prop_assert_eq!(problems.is_empty(), is_valid, "{} and {}", schema, value);
            let count = if is_valid { &valid } else { &invalid };
            count.set(count.get() + 1);
        }
    });
    let (valid, invalid) = (valid.get(), invalid.get());
    assert!(valid > CASES / 10 && invalid > CASES / 10, "{valid} valid and {invalid} not tell little");
}

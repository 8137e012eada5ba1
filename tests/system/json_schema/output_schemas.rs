//! Compares the check of MCP results with a complete JSON Schema validator, on generated schemas and values.

use conjure_mcp::output_schema_mismatch;
use jsonschema::draft202012;
use proptest::prelude::*;
use serde_json::{Value, json};

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..4).prop_map(Value::from),
        (-4_i64..5).prop_map(|half| json!(half as f64 / 2.0)),
        "[ab]{0,3}".prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[ab]", inner, 0..3).prop_map(|members| json!(members)),
        ]
    })
}

fn schema() -> impl Strategy<Value = Value> {
    const KINDS: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];
    let plain = prop_oneof![
        any::<bool>().prop_map(Value::from),
        proptest::sample::select(&KINDS[..]).prop_map(|kind| json!({"type": kind})),
        proptest::sample::subsequence(&KINDS[..], 1..3).prop_map(|kinds| json!({"type": kinds})),
        proptest::collection::vec(value(), 1..3).prop_map(|values| json!({"enum": values})),
        value().prop_map(|value| json!({"const": value})),
        (-2_i64..3).prop_map(
            |bound| json!({"minimum": bound, "maxItems": bound.abs(), "maxProperties": bound.abs()})
        ),
        (0_u64..3).prop_map(|bound| json!({"minLength": bound, "minItems": bound, "maximum": bound})),
        proptest::collection::btree_set("[ab]", 1..3).prop_map(|names| json!({"required": names})),
        Just(json!({"$ref": "#/$defs/other"})),
    ];
    plain.prop_recursive(3, 16, 3, |inner| {
        let several = proptest::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            (inner.clone(), inner.clone())
                .prop_map(|(one, other)| json!({"properties": {"a": one}, "additionalProperties": other})),
            (inner.clone(), inner).prop_map(|(first, items)| json!({"prefixItems": [first], "items": items})),
            (several, proptest::sample::select(&["anyOf", "allOf", "oneOf"][..]))
                .prop_map(|(schemas, keyword)| json!({keyword: schemas})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn it_agrees_with_a_complete_validator(schema in schema(), other in leaf(), value in value()) {
        let schema = match schema {
            Value::Object(mut keywords) => {
                keywords.insert("$defs".to_owned(), json!({"other": {"const": other}}));
                Value::Object(keywords)
            }
            schema => schema,
        };
        let fits = draft202012::new(&schema).unwrap().is_valid(&value);
        let found = output_schema_mismatch(&schema, &value);
        // One alternative alone is not demanded of `oneOf`.
        if fits || !schema.to_string().contains("oneOf") {
            prop_assert_eq!(found.is_none(), fits, "{} {} {:?}", schema, value, found);
        }
    }
}

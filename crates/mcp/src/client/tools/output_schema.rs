//! Checks that the structured content of a result matches the tool's output schema. The specification requires this of clients.
//!
//! Only the structural keywords of JSON Schema are checked. All others, such as patterns and formats, count as fulfilled. So a refused
//! value is invalid in every version of JSON Schema.
//!
//! Schemas come from servers, so the work is limited. Beyond the limit, every value is accepted.

use serde_json::{Map, Value};

/// The maximum number of steps of one check.
const MAX_STEPS: usize = 200_000;

/// The maximum nesting depth of schemas.
const MAX_DEPTH: usize = 100;

/// The maximum length of a path in an error, in characters.
const MAX_PLACE_CHARS: usize = 200;

/// The place and the reason of a mismatch. `None` if the value matches the schema.
pub(crate) fn mismatch(schema: &Value, value: &Value) -> Option<String> {
    let mut check = Check { root: schema, steps: MAX_STEPS, place: Vec::new() };
    let reason = check.value(schema, value, MAX_DEPTH).err()?;
    let place: String = check.place.iter().map(|part| format!("/{part}")).collect();
    let place = conjure_base::text::truncate(&place, MAX_PLACE_CHARS).escape_debug().to_string();
    Some(if place.is_empty() { reason } else { format!("at `{place}` {reason}") })
}

struct Check<'s> {
    root: &'s Value,
    steps: usize,
    /// The path of the current value. After a mismatch it is the path of that mismatch.
    place: Vec<String>,
}

type Fit = Result<(), String>;

impl<'s> Check<'s> {
    /// Counts this many steps. Returns whether any steps remain.
    fn use_steps(&mut self, steps: usize) -> bool {
        self.steps = self.steps.saturating_sub(steps + 1);
        self.steps > 0
    }

    fn value(&mut self, schema: &'s Value, value: &Value, depth: usize) -> Fit {
        let keywords = match schema {
            Value::Bool(false) => return Err("no value is allowed".to_owned()),
            Value::Object(keywords) => keywords,
            _ => return Ok(()),
        };
        if depth == 0 || !self.use_steps(keywords.len()) {
            return Ok(());
        }
        // A schema with its own `$id` changes the base of references, so it is not checked.
        if keywords.contains_key("$id") && !std::ptr::eq(schema, self.root) {
            return Ok(());
        }
        if let Some(reference) = keywords.get("$ref") {
            // Only some versions apply the keywords beside `$ref`, so they are not checked.
            return match self.referred(reference) {
                Some(schema) => self.value(schema, value, depth - 1),
                None => Ok(()),
            };
        }
        self.kind(keywords, value)?;
        self.constants(keywords, value)?;
        bounds(keywords, value)?;
        match value {
            Value::Object(members) => self.members(keywords, members, depth)?,
            Value::Array(items) => self.items(keywords, items, depth)?,
            _ => {}
        }
        for schema in list(keywords, "allOf") {
            self.value(schema, value, depth - 1)?;
        }
        for keyword in ["anyOf", "oneOf"] {
            let schemas = list(keywords, keyword);
            let place = self.place.len();
            let fits = |schema: &'s Value| {
                let fits = self.value(schema, value, depth - 1).is_ok();
                self.place.truncate(place);
                fits
            };
            if !schemas.is_empty() && !schemas.iter().any(fits) {
                return Err(format!("it fits none of the alternatives of `{keyword}`"));
            }
        }
        Ok(())
    }

    /// The schema that a local reference points to.
    fn referred(&self, reference: &Value) -> Option<&'s Value> {
        let pointer = reference.as_str()?.strip_prefix('#')?;
        // Percent-encoded references are not resolved.
        (!pointer.contains('%')).then(|| self.root.pointer(pointer)).flatten()
    }

    fn kind(&mut self, keywords: &Map<String, Value>, value: &Value) -> Fit {
        let kinds: Vec<&str> = match keywords.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => return Ok(()),
        };
        if kinds.is_empty()
            || !self.use_steps(kinds.len())
            || kinds.iter().any(|kind| is_of_kind(value, kind))
        {
            return Ok(());
        }
        let shown =
            conjure_base::text::truncate(&kinds.join(" or "), MAX_PLACE_CHARS).escape_debug().to_string();
        Err(format!("it is of the type {}, and {shown} is needed", kind_of(value)))
    }

    fn constants(&mut self, keywords: &Map<String, Value>, value: &Value) -> Fit {
        let constants = list(keywords, "enum");
        if !constants.is_empty()
            && self.use_steps(constants.len())
            && !constants.iter().any(|constant| is_same(constant, value))
        {
            return Err("it is none of the values that are possible".to_owned());
        }
        match keywords.get("const") {
            Some(constant) if !is_same(constant, value) => {
                Err("it is not the value that is needed".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn members(
        &mut self,
        keywords: &'s Map<String, Value>,
        members: &Map<String, Value>,
        depth: usize,
    ) -> Fit {
        let required = list(keywords, "required");
        if !self.use_steps(required.len()) {
            return Ok(());
        }
        if let Some(missing) =
            required.iter().filter_map(Value::as_str).find(|name| !members.contains_key(*name))
        {
            let missing = conjure_base::text::truncate(missing, MAX_PLACE_CHARS).escape_debug().to_string();
            return Err(format!("the member `{missing}` is missing"));
        }
        let properties = keywords.get("properties").and_then(Value::as_object);
        // Patterns are not evaluated, so with `patternProperties` it is unknown which members are additional.
        let additional =
            keywords.get("additionalProperties").filter(|_| !keywords.contains_key("patternProperties"));
        for (name, value) in members {
            let known = properties.and_then(|properties| properties.get(name));
            if let Some(schema) = known.or(additional) {
                self.place.push(name.clone());
                self.value(schema, value, depth - 1)?;
                self.place.pop();
            }
        }
        Ok(())
    }

    fn items(&mut self, keywords: &'s Map<String, Value>, items: &[Value], depth: usize) -> Fit {
        let first = list(keywords, "prefixItems");
        let rest = keywords.get("items").filter(|schema| !schema.is_array());
        for (at, item) in items.iter().enumerate() {
            if let Some(schema) = first.get(at).or(rest) {
                self.place.push(at.to_string());
                self.value(schema, item, depth - 1)?;
                self.place.pop();
            }
        }
        Ok(())
    }
}

fn list<'v>(keywords: &'v Map<String, Value>, keyword: &str) -> &'v [Value] {
    keywords.get(keyword).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Checks the limits of a number, a length or a count.
fn bounds(keywords: &Map<String, Value>, value: &Value) -> Fit {
    let (least, most, size) = match value {
        Value::Number(number) => ("minimum", "maximum", number.as_f64()),
        Value::String(text) => ("minLength", "maxLength", count(text.chars().count())),
        Value::Array(items) => ("minItems", "maxItems", count(items.len())),
        Value::Object(members) => ("minProperties", "maxProperties", count(members.len())),
        Value::Null | Value::Bool(_) => return Ok(()),
    };
    let bound = |keyword: &str| keywords.get(keyword).and_then(Value::as_f64);
    let Some(size) = size else { return Ok(()) };
    for (keyword, is_broken) in [
        (least, bound(least).is_some_and(|bound| size < bound)),
        (most, bound(most).is_some_and(|bound| size > bound)),
    ] {
        if is_broken {
            return Err(format!("`{keyword}` does not hold"));
        }
    }
    Ok(())
}

fn count(count: usize) -> Option<f64> {
    u32::try_from(count).ok().map(f64::from)
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_of_kind(value: &Value, kind: &str) -> bool {
    match kind {
        "null" | "boolean" | "number" | "string" | "array" | "object" => kind_of(value) == kind,
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        // A type that no version of JSON Schema defines.
        _ => true,
    }
}

/// Whether two values are equal. Numbers are compared by value, in any notation.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has =
                |(name, value): (&String, &Value)| other.get(name).is_some_and(|other| is_same(value, other));
            one.len() == other.len() && one.iter().all(has)
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_fit_is_told_with_its_place() {
        // As a common SDK writes it.
        let schema = json!({
            "$defs": {"Item": {"type": "object", "properties": {"name": {"type": "string"}, "kind": {"enum": ["a", "b"]}}, "required": ["name"]}},
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}, "maxItems": 2},
                "next": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
            },
            "required": ["items"],
            "additionalProperties": false,
        });
        for (value, expected) in [
            (json!({"items": [{"name": "x", "kind": "a", "more": 1}], "next": null}), None),
            (json!({"items": [], "next": 2.0}), None),
            (json!([]), Some("it is of the type array, and object is needed")),
            (json!({}), Some("the member `items` is missing")),
            (
                json!({"items": [{"name": 1}]}),
                Some("at `/items/0/name` it is of the type number, and string is needed"),
            ),
            (json!({"items": [{"name": "x"}, {}]}), Some("at `/items/1` the member `name` is missing")),
            (
                json!({"items": [{"name": "x", "kind": "c"}]}),
                Some("at `/items/0/kind` it is none of the values that are possible"),
            ),
            (
                json!({"items": [{"name": "x"}, {"name": "x"}, {"name": "x"}]}),
                Some("at `/items` `maxItems` does not hold"),
            ),
            (
                json!({"items": [], "next": "x"}),
                Some("at `/next` it fits none of the alternatives of `anyOf`"),
            ),
            (json!({"items": [], "next": 0}), Some("at `/next` it fits none of the alternatives of `anyOf`")),
            (json!({"items": [], "more": 1}), Some("at `/more` no value is allowed")),
        ] {
            assert_eq!(mismatch(&schema, &value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn a_schema_that_never_ends_and_a_flood_of_values_end() {
        let endless = json!({"$ref": "#"});
        assert_eq!(mismatch(&endless, &json!(1)), None);
        let wide = json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}, {"type": "string"}]});
        assert_eq!(mismatch(&wide, &json!(1)), None);
        let constants: Vec<u32> = (0..10_000).collect();
        let values: Vec<i32> = vec![-1; 1_000_000];
        let flood = json!({"items": {"anyOf": [{"enum": constants}, {}]}});
        assert_eq!(mismatch(&flood, &json!(values)), None);
    }
}

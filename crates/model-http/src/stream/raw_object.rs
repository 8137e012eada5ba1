//! [`RawObject`]: a JSON object that keeps the order and exact text of its fields, so that a change of one field leaves the others as they
//! are.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields of an object in order, as raw JSON. The last value of a duplicate name counts.
#[derive(Debug, Default)]
pub struct RawObject {
    fields: Vec<(String, String)>,
    /// The position of each field name. It is used from [`INDEXED`] fields on, because a hostile object may have a million names.
    index_by_name: HashMap<String, usize>,
}

/// The number of fields from which names are looked up in the index.
const INDEXED: usize = 16;

impl RawObject {
    /// The raw JSON of the field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.index_of(name).map(|index| self.fields[index].1.as_str())
    }

    /// The field, if it is a string.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }

    /// Sets a field to this JSON, in place or at the end.
    pub fn set(&mut self, name: &str, json: String) {
        if let Some(index) = self.index_of(name) {
            self.fields[index].1 = json;
            return;
        }
        self.fields.push((name.to_owned(), json));
        if self.fields.len() == INDEXED {
            let names = self.fields.iter().map(|(name, _)| name.clone());
            self.index_by_name = names.zip(0..).collect();
        } else if self.fields.len() > INDEXED {
            self.index_by_name.insert(name.to_owned(), self.fields.len() - 1);
        }
    }

    /// The position of the field.
    fn index_of(&self, name: &str) -> Option<usize> {
        if self.fields.len() < INDEXED {
            return self.fields.iter().position(|(other, _)| other == name);
        }
        self.index_by_name.get(name).copied()
    }

    /// How many fields there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there is no field.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The fields in order: name and raw JSON.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, json)| (name.as_str(), json.as_str()))
    }

    /// The object's JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let size = self.fields.iter().map(|(name, json)| name.len() + json.len() + 4).sum::<usize>();
        let mut object = String::with_capacity(size + 2);
        object.push('{');
        for (name, json) in &self.fields {
            if object.len() > 1 {
                object.push(',');
            }
            object.push_str(&quoted(name));
            object.push(':');
            object.push_str(json);
        }
        object.push('}');
        object
    }
}

/// The text as a JSON string.
#[must_use]
pub fn quoted(text: &str) -> String {
    // Serializing a string never fails.
    serde_json::to_string(text).unwrap_or_default()
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = RawObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawObject, A::Error> {
                let mut fields = RawObject::default();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    fields.set(&name, value.get().to_owned());
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_text_of_fields_are_kept() {
        let mut fields: RawObject =
            serde_json::from_str(r#" {"b": 1.50 ,"a":{"x" : [ 1 ]},"b\n":"\u00e9"} "#).unwrap();
        assert_eq!(fields.to_json(), r#"{"b":1.50,"a":{"x" : [ 1 ]},"b\n":"\u00e9"}"#);
        fields.set("a", "2".to_owned());
        fields.set("new", "null".to_owned());
        assert_eq!(fields.to_json(), r#"{"b":1.50,"a":2,"b\n":"\u00e9","new":null}"#);
        assert_eq!(fields.text("b\n").unwrap(), "\u{e9}");
        assert_eq!(fields.text("b"), None);
    }

    #[test]
    fn many_fields_are_found_like_few() {
        let mut fields = RawObject::default();
        for n in 0..2 * INDEXED {
            fields.set(&format!("f{n}"), "0".to_owned());
        }
        for n in 0..2 * INDEXED {
            fields.set(&format!("f{n}"), n.to_string());
            assert_eq!(fields.get(&format!("f{n}")), Some(n.to_string().as_str()));
        }
        assert_eq!((fields.len(), fields.get("f")), (2 * INDEXED, None));
        let expected: Vec<String> = (0..2 * INDEXED).map(|n| format!(r#""f{n}":{n}"#)).collect();
        assert_eq!(fields.to_json(), format!("{{{}}}", expected.join(",")));
    }

    #[test]
    fn the_last_of_duplicate_fields_wins() {
        let fields: RawObject = serde_json::from_str(r#"{"a":1,"b":2,"a":3}"#).unwrap();
        assert_eq!(fields.to_json(), r#"{"a":3,"b":2}"#);
    }
}

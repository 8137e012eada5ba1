//! [`Members`]: a JSON object that is read without copying, as names and raw values in order. Every value may have any type.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object, in order.
#[derive(Debug, Default)]
pub(crate) struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The raw value of a member that is not `null`. The last one of a duplicate name counts.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let (_, raw) = self.0.iter().rev().find(|(other, _)| other == name)?;
        (raw.get() != "null").then_some(*raw)
    }

    /// The text of a member that is a string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        string_value(self.get(name)?)
    }

    /// The members of a member that is an object.
    pub(crate) fn object(&self, name: &str) -> Option<Members<'a>> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// A member that is a non-negative integer.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, raw)| (name.as_ref(), *raw))
    }
}

/// The text of a raw value, if it is a string. A server may split a string inside a surrogate pair, which leaves half a character. The
/// half becomes U+FFFD.
pub(crate) fn string_value(raw: &RawValue) -> Option<String> {
    if !raw.get().starts_with('"') {
        return None;
    }
    serde_json::from_str::<LossyText>(raw.get()).ok().map(|text| text.0)
}

/// A string, read as the bytes that it stands for. They may include halves of characters.
struct LossyText(String);

impl<'de> Deserialize<'de> for LossyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl Visitor<'_> for TextVisitor {
            type Value = LossyText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<LossyText, E> {
                Ok(LossyText(String::from_utf8_lossy(bytes).into_owned()))
            }
        }

        deserializer.deserialize_bytes(TextVisitor)
    }
}

/// The items of a raw value, if it is a list.
pub(crate) fn array_items(raw: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((name, raw)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    members.push((name.0, raw));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A member name. It is borrowed if it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_character_does_not_lose_the_text() {
        let text = |json: &str| string_value(&RawValue::from_string(json.to_owned()).unwrap());
        assert_eq!(text(r#""a\ud83e\udd80b""#).as_deref(), Some("a\u{1F980}b"));
        let half = text(r#""a\ud83eb""#).unwrap();
        assert!(half.starts_with('a') && half.ends_with('b') && half.contains('\u{FFFD}'), "{half}");
        assert_eq!((text("7"), text("[1]")), (None, None));
    }

    #[test]
    fn members_of_any_type_are_read_in_order() {
        let json = r#"{"b":1.50,"a":null,"\u0063":"\u00e9","b":7,"o":{"x":"y"},"l":[1,"2"]}"#;
        let members: Members<'_> = serde_json::from_str(json).unwrap();
        let names: Vec<&str> = members.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "a", "c", "b", "o", "l"]);
        assert_eq!(members.number("b"), Some(7));
        assert_eq!(members.text("c").as_deref(), Some("\u{e9}"));
        assert_eq!(members.object("o").unwrap().text("x").as_deref(), Some("y"));
        assert_eq!(array_items(members.get("l").unwrap()).len(), 2);
        assert!(members.get("a").is_none() && members.get("z").is_none() && members.text("b").is_none());
        assert!(serde_json::from_str::<Members<'_>>("[]").is_err());
    }
}

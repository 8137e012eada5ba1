//! Reads the JSON of a request. It checks types and limits, and refuses unknown fields. Errors name the position of the fault.
//!
//! `serde` cannot say which field of a tagged union is wrong. These readers know the position of each value, and keep the text of a value
//! that is passed on unchanged.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::RequestError;

/// A value of a request, with its position.
#[derive(Debug, Clone)]
pub(crate) struct Input<'a> {
    path: String,
    raw: &'a RawValue,
}

/// The change that an update makes to a field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Patch<T> {
    /// The field was absent: the value stays.
    #[default]
    Keep,
    /// The field was null: the value is removed.
    Clear,
    /// The field had a value: it replaces the old one.
    Set(T),
}

impl<T> Patch<T> {
    /// Applies the patch to `current`. Null removes the value.
    pub fn apply(self, current: Option<T>) -> Option<T> {
        match self {
            Self::Keep => current,
            Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }

    /// Applies the patch to `current`. Null sets the default.
    pub fn apply_or_default(self, current: T) -> T
    where
        T: Default,
    {
        match self {
            Self::Keep => current,
            Self::Clear => T::default(),
            Self::Set(value) => value,
        }
    }
}

impl<'a> Input<'a> {
    /// Parses the body of a request.
    pub(crate) fn body(bytes: &'a [u8]) -> Result<Self, RequestError> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(RequestError::new("", "the request has no body; send a JSON object"));
        }
        serde_json::from_slice(bytes)
            .map(|raw| Self { path: String::new(), raw })
            .map_err(|error| RequestError::new("", format!("the body is not JSON: {error}")))
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> RequestError {
        RequestError::new(self.path.clone(), message)
    }

    pub(crate) fn is_null(&self) -> bool {
        self.raw.get() == "null"
    }

    pub(crate) fn is_string(&self) -> bool {
        self.raw.get().starts_with('"')
    }

    /// The JSON type of the value.
    fn kind(&self) -> &'static str {
        match self.raw.get().as_bytes().first() {
            Some(b'"') => "a string",
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            _ => "a number",
        }
    }

    fn expected(&self, what: &str) -> RequestError {
        self.error(format!("expected {what}, found {}", self.kind()))
    }

    fn read<T: Deserialize<'a>>(&self, what: &str) -> Result<T, RequestError> {
        serde_json::from_str(self.raw.get()).map_err(|_| self.expected(what))
    }

    pub(crate) fn object(self) -> Result<ObjectInput<'a>, RequestError> {
        let Fields(fields) = match self.raw.get().starts_with('{') {
            true => serde_json::from_str(self.raw.get())
                .map_err(|error| self.error(format!("the object cannot be read: {error}")))?,
            false => return Err(self.expected("an object")),
        };
        let mut names: Vec<&str> = fields.iter().map(|(name, _)| name.as_ref()).collect();
        names.sort_unstable();
        if let Some(duplicate) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(self.error(format!("the field `{}` is a duplicate; keep one of them", duplicate[0])));
        }
        Ok(ObjectInput { path: self.path, known: Vec::new(), fields })
    }

    /// Reads an object. Fields that `read` does not take are refused.
    pub(crate) fn read_object<T>(
        self,
        read: impl FnOnce(&mut ObjectInput<'a>) -> Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        let mut object = self.object()?;
        let value = read(&mut object)?;
        object.finish()?;
        Ok(value)
    }

    /// Reads an array of at most `max` elements. `what` names the elements in messages.
    pub(crate) fn array(self, what: &str, max: usize) -> Result<Vec<Self>, RequestError> {
        let elements: Vec<&RawValue> = self.read("an array")?;
        if elements.len() > max {
            return Err(
                self.error(format!("{} {what} are too many; at most {max} are allowed", elements.len()))
            );
        }
        let path = &self.path;
        Ok((elements.into_iter().enumerate())
            .map(|(index, raw)| Self { path: format!("{path}.{index}"), raw })
            .collect())
    }

    /// Reads a string of any length.
    pub(crate) fn string(&self) -> Result<String, RequestError> {
        self.read("a string")
    }

    /// Reads a string whose number of characters is in `length`.
    pub(crate) fn text(&self, length: RangeInclusive<usize>) -> Result<String, RequestError> {
        let text = self.string()?;
        let found = text.chars().count();
        if length.contains(&found) {
            return Ok(text);
        }
        let (min, max) = (length.start(), length.end());
        Err(self.error(match found {
            0 => format!("the text is empty; give 1 to {max} characters"),
            _ => format!("the text has {found} characters; {min} to {max} are allowed"),
        }))
    }

    pub(crate) fn boolean(&self) -> Result<bool, RequestError> {
        self.read("true or false")
    }

    /// Reads an integer in `range`.
    pub(crate) fn integer(&self, range: RangeInclusive<u64>) -> Result<u64, RequestError> {
        let (min, max) = (range.start(), range.end());
        let range_text = if *max == u64::MAX { format!("{min} or more") } else { format!("{min} to {max}") };
        let number: serde_json::Number = self.read("an integer")?;
        number
            .as_u64()
            .filter(|number| range.contains(number))
            .ok_or_else(|| self.error(format!("{number} is not allowed; give an integer of {range_text}")))
    }

    /// Reads a number from `min` to `max`.
    pub(crate) fn number(&self, min: f64, max: f64) -> Result<f64, RequestError> {
        let number: f64 = self.read("a number")?;
        if (min..=max).contains(&number) {
            return Ok(number);
        }
        Err(self.error(format!("{number} is not allowed; give a number from {min} to {max}")))
    }

    /// Reads one of `allowed`, by its name.
    pub(crate) fn one_of<T: Copy>(&self, allowed: &[(&str, T)]) -> Result<T, RequestError> {
        let text = self.string()?;
        allowed.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
            self.error(format!(
                "`{text}` is not allowed; give {}",
                one_of(allowed.iter().map(|(name, _)| *name))
            ))
        })
    }

    /// The unchanged text of the value. Its nesting is limited, so that later readers can parse it too.
    pub(crate) fn verbatim(&self) -> Result<Box<RawValue>, RequestError> {
        serde_json::from_str::<serde_json::Value>(self.raw.get())
            .map_err(|error| self.error(format!("the value cannot be read: {error}")))?;
        Ok(self.raw.to_owned())
    }
}

/// The fields of an object in a request. [`ObjectInput::finish`] refuses the fields that were not read.
#[derive(Debug)]
pub struct ObjectInput<'a> {
    path: String,
    /// The names that were read, for the message about unknown fields.
    known: Vec<&'static str>,
    fields: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> ObjectInput<'a> {
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The position of the field `name`.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Takes the field; `None` if it is absent.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<Input<'a>> {
        self.known.push(name);
        let index = self.fields.iter().position(|(found, _)| found == name)?;
        let (_, raw) = self.fields.swap_remove(index);
        Some(Input { path: self.path_of(name), raw })
    }

    /// Takes the field; `None` if it is absent or null.
    pub(crate) fn optional(&mut self, name: &'static str) -> Option<Input<'a>> {
        self.take(name).filter(|input| !input.is_null())
    }

    /// Takes a required field.
    pub(crate) fn required(&mut self, name: &'static str) -> Result<Input<'a>, RequestError> {
        let path = self.path_of(name);
        self.take(name).ok_or_else(|| RequestError::new(path, "the field is missing; it is required"))
    }

    /// Takes the field of an update. If it has a value, `read` parses the value.
    pub(crate) fn patch<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(Input<'a>) -> Result<T, RequestError>,
    ) -> Result<Patch<T>, RequestError> {
        match self.take(name) {
            None => Ok(Patch::Keep),
            Some(input) if input.is_null() => Ok(Patch::Clear),
            Some(input) => read(input).map(Patch::Set),
        }
    }

    /// Reads the value of `type`, which must be one of `allowed`.
    pub(crate) fn kind<T: Copy>(&mut self, allowed: &[(&str, T)]) -> Result<T, RequestError> {
        self.required("type")?.one_of(allowed)
    }

    /// Refuses a value of the field `name`, which this server does not support.
    pub(crate) fn unsupported(&mut self, name: &'static str, what: &str) -> Result<(), RequestError> {
        match self.optional(name) {
            Some(input) if !matches!(input.raw.get(), "[]" | "{}") => {
                Err(RequestError::unsupported(input.path, what))
            }
            _ => Ok(()),
        }
    }

    /// The remaining fields of an object whose names the client chooses.
    pub(crate) fn entries(self) -> Vec<(String, Input<'a>)> {
        let path = self.path.clone();
        self.fields
            .into_iter()
            .map(|(name, raw)| {
                let path = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
                (name.into_owned(), Input { path, raw })
            })
            .collect()
    }

    /// Refuses the fields that were not read.
    pub(crate) fn finish(self) -> Result<(), RequestError> {
        let Some((unknown, _)) = self.fields.first() else { return Ok(()) };
        let known = one_of(self.known.iter().copied());
        Err(RequestError::new(
            self.path_of(unknown),
            format!("the field is unknown; remove it, or give one of the fields {known}"),
        ))
    }
}

/// Formats names as "`a`, `b` or `c`".
fn one_of<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.join(""),
    }
}

/// The fields of an object in order, with their values unparsed.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A field name. It is borrowed if it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some((Name(name), raw)) = map.next_entry()? {
                    fields.push((name, raw));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

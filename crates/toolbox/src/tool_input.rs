//! Typed reading of tool inputs. Errors name the field and say how to mend it, because the model reads them and tries again.

use std::collections::BTreeMap;

use conjure_sandbox::LineRange;
use serde_json::{Map, Value};

use crate::text::quote;

/// The longest path that Linux accepts.
const MAX_PATH_BYTES: usize = 4096;

/// The longest single argument that Linux accepts, without the zero byte at its end.
pub(crate) const MAX_ARGUMENT_BYTES: usize = 128 * 1024 - 1;

/// The fields of a call's input.
pub(crate) struct InputFields<'v>(&'v Map<String, Value>);

impl<'v> InputFields<'v> {
    /// The fields of an input, which must be an object.
    pub(crate) fn from_value(input: &'v Value) -> Result<Self, String> {
        match input {
            Value::Object(fields) => Ok(Self(fields)),
            other => Err(format!("the input must be an object, not {}", json_kind(other))),
        }
    }

    /// The required field `path`.
    pub(crate) fn path(&self) -> Result<&'v str, String> {
        self.path_field("path")
    }

    /// A required path.
    pub(crate) fn path_field(&self, name: &str) -> Result<&'v str, String> {
        let path = self.text(name)?;
        if path.is_empty() {
            return Err(format!("field `{name}` is empty: give the path of a file"));
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(format!(
                "field `{name}` has {} bytes: a path has at most {MAX_PATH_BYTES}",
                path.len()
            ));
        }
        without_zero(name, path)
    }

    /// An optional path; `null` and an empty text count as absent.
    pub(crate) fn optional_path(&self, name: &str) -> Result<Option<&'v str>, String> {
        match self.optional_text(name)? {
            None | Some("") => Ok(None),
            Some(_) => self.path_field(name).map(Some),
        }
    }

    /// An optional whole number that is not negative; `null` counts as absent.
    pub(crate) fn whole_number(&self, name: &str) -> Result<Option<u64>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| {
                format!(
                    "field `{name}` must be a whole number that is not negative; it is {}",
                    quote(&value.to_string())
                )
            }),
        }
    }

    /// The required field `command`.
    pub(crate) fn command(&self) -> Result<&'v str, String> {
        let command = self.text("command")?;
        if command.trim().is_empty() {
            return Err("field `command` is empty: give the bash command to execute".to_owned());
        }
        if command.len() > MAX_ARGUMENT_BYTES {
            return Err(format!(
                "field `command` has {} bytes, and a command has at most {MAX_ARGUMENT_BYTES}: write it to a file with \
                 `create_file` and run that with `bash`",
                command.len()
            ));
        }
        without_zero("command", command)
    }

    /// A required string.
    pub(crate) fn text(&self, name: &str) -> Result<&'v str, String> {
        match self.0.get(name) {
            None => Err(format!("field `{name}` is missing: it is required, and must be a string")),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(format!("field `{name}` must be a string, not {}", json_kind(other))),
        }
    }

    /// An optional string; `null` counts as absent.
    pub(crate) fn optional_text(&self, name: &str) -> Result<Option<&'v str>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.text(name).map(Some),
        }
    }

    /// An optional array of strings; `null` counts as absent.
    pub(crate) fn optional_texts(&self, name: &str, max: usize) -> Result<Option<Vec<&'v str>>, String> {
        let items = match self.0.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Array(items)) => items,
            Some(other) => {
                return Err(format!("field `{name}` must be an array of strings, not {}", json_kind(other)));
            }
        };
        if items.len() > max {
            return Err(format!("field `{name}` has {} items, and the maximum is {max}", items.len()));
        }
        let text = |(place, item): (usize, &'v Value)| {
            item.as_str().ok_or_else(|| {
                format!("item {place} of field `{name}` must be a string, not {}", json_kind(item))
            })
        };
        items.iter().enumerate().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// An optional object of strings; `null` counts as absent.
    pub(crate) fn optional_map(&self, name: &str, max: usize) -> Result<BTreeMap<String, String>, String> {
        let items = match self.0.get(name) {
            None | Some(Value::Null) => return Ok(BTreeMap::new()),
            Some(Value::Object(items)) => items,
            Some(other) => {
                return Err(format!("field `{name}` must be an object of strings, not {}", json_kind(other)));
            }
        };
        if items.len() > max {
            return Err(format!("field `{name}` has {} entries, and the maximum is {max}", items.len()));
        }
        let text = |(key, item): (&String, &Value)| match item {
            Value::String(text) => Ok((key.clone(), text.clone())),
            other => Err(format!(
                "entry `{}` of field `{name}` must be a string, not {}",
                quote(key),
                json_kind(other)
            )),
        };
        items.iter().map(text).collect()
    }

    /// An optional boolean; absent is `false`.
    pub(crate) fn boolean(&self, name: &str) -> Result<bool, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(format!("field `{name}` must be true or false, not {}", json_kind(other))),
        }
    }

    /// The optional field `view_range`: `[start, end]`, counted from 1, `-1` for the last line.
    pub(crate) fn view_range(&self) -> Result<Option<LineRange>, String> {
        let value = match self.0.get("view_range") {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        };
        let numbers = value
            .as_array()
            .and_then(|items| items.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>())
            .ok_or(value);
        let (start, end) = match numbers.as_deref() {
            Ok(&[start, end]) => (start, end),
            _ => {
                return Err(format!(
                    "field `view_range` must be two whole numbers [start_line, end_line], such as [1, 50], or [10, -1] \
                     to read to the end; it is {}",
                    quote(&value.to_string())
                ));
            }
        };
        let first = u64::try_from(start)
            .ok()
            .filter(|first| *first > 0)
            .ok_or_else(|| format!("field `view_range` starts at line {start}: lines are counted from 1"))?;
        if end == -1 {
            return Ok(Some(LineRange { first, last: None }));
        }
        match u64::try_from(end) {
            Ok(last) if last >= first => Ok(Some(LineRange { first, last: Some(last) })),
            _ => Err(format!(
                "field `view_range` ends at line {end}, before its start at line {start}: use -1 to read to the end"
            )),
        }
    }
}

pub(crate) fn without_zero<'t>(name: &str, text: &'t str) -> Result<&'t str, String> {
    if text.contains('\0') { Err(format!("field `{name}` must not hold a zero character")) } else { Ok(text) }
}

/// The JSON type of a value, in words.
pub(crate) const fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

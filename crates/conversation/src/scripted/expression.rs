//! An expression of a template: a source and its filters.
//!
//! `{{SOURCE | FILTER | FILTER}}`. Sources: `system`, `user`, `result:ID`, `result:last`, `skill_location:NAME`, `skill_dir:NAME`.
//! Filters: `line:N`, `match:REGEX`, `trim`, `json:/POINTER`, `shell`. An argument that holds `|`, `}}` or outer spaces must be in
//! quotes (`'…'` or `"…"`). A quote within it is doubled.

use std::borrow::Cow;

use regex_lite::{Regex, RegexBuilder};
use serde_json::Value;

use super::request_view::{RequestView, ResultRef, shorten};

/// The longest expression, in bytes.
const MAX_EXPRESSION_BYTES: usize = 4096;

/// The maximum number of filters of one expression.
const MAX_FILTERS: usize = 16;

/// The compiled size of one pattern, in bytes. Patterns are compiled when they are used, one at a time.
const MAX_PATTERN_BYTES: usize = 128 << 10;

/// How much text the expressions of one turn may search, in bytes. A script could quote a large prompt a thousand times.
pub(super) const MAX_EXAMINED_BYTES: usize = 256 << 20;

const SOURCES: &str =
    "`system`, `user`, `result:ID`, `result:last`, `skill_location:NAME` or `skill_dir:NAME`";
const FILTERS: &str = "`line:N`, `match:REGEX`, `trim`, `json:/POINTER` or `shell`";

/// A parsed expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expression {
    /// Its source text, with the braces.
    text: String,
    source: Source,
    filters: Vec<Filter>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    System,
    User,
    Result(ResultRef),
    SkillLocation(String),
    SkillDir(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Filter {
    /// Lines count from 1; negative numbers count from the end.
    Line(i64),
    Match(Pattern),
    Trim,
    Json(String),
    Shell,
}

/// A valid regular expression, kept as text. A script may have thousands, but uses one at a time, so each is compiled at its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern(String);

impl Pattern {
    /// Checks the pattern.
    pub(super) fn new(text: impl Into<String>) -> Result<Self, String> {
        let pattern = Self(text.into());
        pattern.compile()?;
        Ok(pattern)
    }

    /// The pattern's text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The first match: its first group, or the whole match if the pattern has no group.
    pub(super) fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        let captures = self.compile().ok()?.captures(text)?;
        captures.get(1).or_else(|| captures.get(0)).map(|found| found.as_str())
    }

    fn compile(&self) -> Result<Regex, String> {
        RegexBuilder::new(&self.0)
            .size_limit(MAX_PATTERN_BYTES)
            .build()
            .map_err(|error| format!("`{}` is not a regular expression: {error}", self.0))
    }
}

impl Expression {
    /// Parses the expression after its opening braces. Returns it and its length in bytes, with the closing braces.
    pub(super) fn parse(after_braces: &str) -> Result<(Self, usize), String> {
        let mut cursor = Cursor { text: after_braces, at: 0 };
        let mut source = None;
        let mut filters = Vec::new();
        loop {
            let (name, argument) = cursor.call()?;
            match source {
                None => source = Some(Source::new(name, argument)?),
                Some(_) if filters.len() == MAX_FILTERS => {
                    return Err(format!("an expression may have {MAX_FILTERS} filters at most"));
                }
                Some(_) => filters.push(Filter::new(name, argument)?),
            }
            if cursor.close()? {
                break;
            }
        }
        let source = source.ok_or_else(|| format!("an expression needs a source: {SOURCES}"))?;
        if cursor.at > MAX_EXPRESSION_BYTES {
            return Err(format!("an expression may have {MAX_EXPRESSION_BYTES} bytes at most"));
        }
        let text = format!("{{{{{}", &after_braces[..cursor.at]);
        Ok((Self { text, source, filters }, cursor.at))
    }

    /// Evaluates the expression. The bytes that it searches are subtracted from `work_left`.
    pub(super) fn evaluate<'s>(
        &self,
        sent: &'s RequestView<'_>,
        work_left: &mut usize,
    ) -> Result<Cow<'s, str>, String> {
        self.find(sent, work_left)
            .map_err(|reason| format!("the expression `{}` finds nothing: {reason}", self.text))
    }

    fn find<'s>(&self, sent: &'s RequestView<'_>, work_left: &mut usize) -> Result<Cow<'s, str>, String> {
        let mut value = self.source.find(sent)?;
        let examined = self.source.examined_bytes(sent, &value);
        *work_left = work_left.checked_sub(examined).ok_or_else(|| {
            format!("the turn looks through more than {MAX_EXAMINED_BYTES} bytes; use fewer expressions")
        })?;
        for filter in &self.filters {
            value = Cow::Owned(filter.apply(&value)?);
        }
        if value.is_empty() {
            return Err("what is there is empty".to_owned());
        }
        Ok(value)
    }
}

impl Source {
    fn new(name: &str, argument: Option<String>) -> Result<Self, String> {
        Ok(match (name, argument) {
            ("system", None) => Self::System,
            ("user", None) => Self::User,
            ("result", Some(id)) => Self::Result(ResultRef::new(id)),
            ("skill_location", Some(skill)) => Self::SkillLocation(skill),
            ("skill_dir", Some(skill)) => Self::SkillDir(skill),
            (other, _) => return Err(format!("`{other}` is not a source here; use {SOURCES}")),
        })
    }

    /// How many bytes the search for `value` read.
    fn examined_bytes(&self, sent: &RequestView<'_>, value: &str) -> usize {
        match self {
            Self::System | Self::User | Self::Result(_) => value.len(),
            Self::SkillLocation(_) | Self::SkillDir(_) => sent.system().len(),
        }
    }

    fn find<'s>(&self, sent: &'s RequestView<'_>) -> Result<Cow<'s, str>, String> {
        match self {
            Self::System => Ok(Cow::Borrowed(sent.system())),
            Self::User => sent.user().map(Cow::Owned).ok_or_else(|| "the user wrote no text".to_owned()),
            Self::Result(which) => {
                sent.result(which).map(|result| Cow::Borrowed(result.text)).ok_or_else(|| {
                    let ids: Vec<&str> = sent.results().map(|result| result.id).take(10).collect();
                    if ids.is_empty() {
                        "no tool result was sent".to_owned()
                    } else {
                        format!("the last results sent answer {}", ids.join(", "))
                    }
                })
            }
            Self::SkillLocation(name) => location_of(name, sent).map(Cow::Owned),
            Self::SkillDir(name) => {
                let location = location_of(name, sent)?;
                match location.rsplit_once('/') {
                    Some((dir, _)) if !dir.is_empty() => Ok(Cow::Owned(dir.to_owned())),
                    _ => Err(format!("the location {} has no directory", shorten(&location))),
                }
            }
        }
    }
}

/// The location of the skill `name` in the instructions.
fn location_of(name: &str, sent: &RequestView<'_>) -> Result<String, String> {
    let skills = sent.skills();
    match skills.iter().find(|skill| skill.name == name) {
        Some(skill) if skill.location.is_empty() => {
            Err(format!("the instructions list the skill `{name}` without a location"))
        }
        Some(skill) => Ok(skill.location.clone()),
        None if skills.is_empty() => {
            Err(format!("the instructions list no skills; they are {}", shorten(sent.system())))
        }
        None => {
            let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
            Err(format!("the instructions list other skills: {}", shorten(&names.join(", "))))
        }
    }
}

impl Filter {
    fn new(name: &str, argument: Option<String>) -> Result<Self, String> {
        Ok(match (name, argument) {
            ("line", Some(number)) => match number.parse() {
                Ok(number) if number != 0 => Self::Line(number),
                _ => {
                    return Err(format!("`line:{number}`: lines count from 1, or from -1 at the end"));
                }
            },
            ("match", Some(pattern)) => Self::Match(Pattern::new(pattern)?),
            ("trim", None) => Self::Trim,
            ("json", Some(pointer)) if pointer.is_empty() || pointer.starts_with('/') => Self::Json(pointer),
            ("json", Some(pointer)) => {
                return Err(format!("`json:{pointer}`: a pointer begins with `/`, as in `json:/total`"));
            }
            ("shell", None) => Self::Shell,
            (other, _) => {
                return Err(format!(
                    "`{other}` is not a filter here; use {FILTERS}, and quote an argument that holds `|`"
                ));
            }
        })
    }

    fn apply(&self, text: &str) -> Result<String, String> {
        match self {
            Self::Line(number) => {
                let count = text.lines().count();
                let index = match usize::try_from(*number) {
                    Ok(from_start) => from_start.checked_sub(1),
                    Err(_) => {
                        usize::try_from(number.unsigned_abs()).ok().and_then(|back| count.checked_sub(back))
                    }
                };
                let line = index.and_then(|index| text.lines().nth(index));
                line.map(str::to_owned).ok_or_else(|| {
                    format!("there is no line {number}; there are {count} lines: {}", shorten(text))
                })
            }
            Self::Match(pattern) => pattern.find(text).map(str::to_owned).ok_or_else(|| {
                format!("the pattern `{}` does not match {}", pattern.as_str(), shorten(text))
            }),
            Self::Trim => Ok(text.trim().to_owned()),
            Self::Json(pointer) => {
                let value: Value = serde_json::from_str(text)
                    .map_err(|error| format!("it is not JSON ({error}): {}", shorten(text)))?;
                match value.pointer(pointer) {
                    Some(Value::String(text)) => Ok(text.clone()),
                    Some(other) => Ok(other.to_string()),
                    None => Err(format!("nothing is at `{pointer}` in {}", shorten(text))),
                }
            }
            Self::Shell => Ok(format!("'{}'", text.replace('\'', r"'\''"))),
        }
    }
}

/// Reads the inside of an expression.
struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// A name, and the argument after its colon.
    fn call(&mut self) -> Result<(&'t str, Option<String>), String> {
        self.skip_spaces();
        let rest = self.rest();
        let length = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        if length == 0 {
            return Err(format!(
                "a name must stand at {}; write `\\{{{{` for braces that are meant literally",
                shorten(&rest.chars().take(20).collect::<String>())
            ));
        }
        let name = &rest[..length];
        self.at += length;
        if !self.rest().starts_with(':') {
            return Ok((name, None));
        }
        self.at += 1;
        self.skip_spaces();
        match self.rest().chars().next() {
            Some(quote @ ('\'' | '"')) => Ok((name, Some(self.quoted(quote)?))),
            _ => Ok((name, Some(self.unquoted()?))),
        }
    }

    /// An argument in quotes. A quote within it is doubled.
    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let mut argument = String::new();
        let mut chars = self.rest().char_indices().skip(1).peekable();
        while let Some((at, char)) = chars.next() {
            if char != quote {
                argument.push(char);
            } else if chars.next_if(|(_, next)| *next == quote).is_some() {
                argument.push(quote);
            } else {
                self.at += at + quote.len_utf8();
                return Ok(argument);
            }
        }
        Err(format!("the argument that begins with {quote} does not end"))
    }

    /// Parses an argument without quotes: up to the next `|` or `}}`.
    fn unquoted(&mut self) -> Result<String, String> {
        let rest = self.rest();
        let end = [rest.find('|'), rest.find("}}")].into_iter().flatten().min();
        let end = end.ok_or("an expression must be closed by `}}`")?;
        self.at += end;
        Ok(rest[..end].trim_end().to_owned())
    }

    /// Whether the expression ends here; if not, a filter follows.
    fn close(&mut self) -> Result<bool, String> {
        self.skip_spaces();
        let (length, closed) = match self.rest() {
            rest if rest.starts_with("}}") => (2, true),
            rest if rest.starts_with('|') => (1, false),
            rest => {
                return Err(format!(
                    "`|` or `}}}}` must stand at {}; quote an argument that holds `}}}}`",
                    shorten(&rest.chars().take(20).collect::<String>())
                ));
            }
        };
        self.at += length;
        Ok(closed)
    }
}

//! Parses a script from a file or a text. The size is bounded, and errors have their position.
//!
//! A [`Script`] is immutable after it was loaded.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::error::ScriptError;
use super::script_turn::{ScriptBlock, ScriptTurn};

/// The largest script, in bytes; the limit of YAML is lower.
const MAX_BYTES: usize = 8 << 20;

/// The maximum number of turns of a script.
pub const MAX_TURNS: usize = 10_000;

/// The largest size of a script after its aliases are expanded, in bytes. A short YAML text can expand to a huge one.
const MAX_EXPANDED_BYTES: usize = 4 * MAX_BYTES;

/// The supported version of the format.
pub(super) const VERSION: u64 = 1;

/// A parsed script.
#[derive(Debug, Clone)]
pub struct Script {
    label: String,
    name: Option<String>,
    turns: Vec<ScriptTurn>,
}

/// The file format of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptFormat {
    /// `.yaml`, `.yml`
    Yaml,
    /// `.json`
    Json,
}

impl ScriptFormat {
    /// The largest script of this format, in bytes: 8 MiB of JSON, 1 MiB of YAML. The YAML parser needs a hundred times the memory, and
    /// quadratic time for a hostile nesting.
    #[must_use]
    pub const fn max_bytes(self) -> usize {
        match self {
            Self::Yaml => MAX_BYTES / 8,
            Self::Json => MAX_BYTES,
        }
    }

    /// The format by the extension of the path.
    ///
    /// # Errors
    /// [`ScriptError::UnknownFormat`] for any other extension.
    pub fn from_path(path: &Path) -> Result<Self, ScriptError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("yaml" | "yml") => Ok(Self::Yaml),
            Some("json") => Ok(Self::Json),
            _ => Err(ScriptError::UnknownFormat { path: path.to_owned() }),
        }
    }
}

impl Script {
    /// Reads a script file. The extension (`.yaml`, `.yml`, `.json`) sets the format. Blocks while it reads at most
    /// [`ScriptFormat::max_bytes`].
    ///
    /// # Errors
    /// When the path is not a readable regular file, or its content is not a script.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ScriptError> {
        let path = path.as_ref();
        let failed = |source| ScriptError::Read { path: path.to_owned(), source };
        // Checked before it is opened: opening a pipe would wait for its writer.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(ScriptError::NotAFile { path: path.to_owned() });
        }
        let format = ScriptFormat::from_path(path)?;
        let label = path.display().to_string();
        let mut bytes = Vec::new();
        let limit = u64::try_from(format.max_bytes()).unwrap_or(u64::MAX).saturating_add(1);
        File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(failed)?;
        if bytes.len() > format.max_bytes() {
            return Err(ScriptError::TooLarge { script: label, limit: format.max_bytes() });
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Self::from_text(text, format, label),
            Err(error) => Err(ScriptError::NotUtf8 { script: label, offset: error.valid_up_to() }),
        }
    }

    /// Parses a script. `label` names it in errors.
    ///
    /// # Errors
    /// When the text is not a script. The error names the turn and the field, and the line and column if known.
    pub fn from_text(
        text: &str,
        format: ScriptFormat,
        label: impl Into<String>,
    ) -> Result<Self, ScriptError> {
        let label = label.into();
        if text.len() > format.max_bytes() {
            return Err(ScriptError::TooLarge { script: label, limit: format.max_bytes() });
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let invalid = |reason| ScriptError::Invalid { script: label.clone(), reason };
        let budget = Cell::new(MAX_EXPANDED_BYTES);
        let version = format.read(text, HeaderSeed(&budget)).map_err(invalid)?;
        check_version(version, &label)?;
        let turn = Cell::new(0);
        let (name, mut turns) =
            format.read(text, ScriptSeed(&turn)).map_err(|reason| invalid(in_turn(turn.get(), reason)))?;
        assign_call_ids(&mut turns).map_err(invalid)?;
        Ok(Self { label, name, turns })
    }

    /// The name in the script.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The path of the file, or the label of the text.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// How many model calls it answers.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.turns.len()
    }

    /// Whether it answers none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The turn at this index, from 0.
    pub(super) fn turn(&self, index: usize) -> Option<&ScriptTurn> {
        self.turns.get(index)
    }
}

impl ScriptFormat {
    /// Parses a complete text.
    fn read<'de, S: DeserializeSeed<'de>>(self, text: &'de str, seed: S) -> Result<S::Value, String> {
        match self {
            Self::Yaml => seed
                .deserialize(serde_yaml::Deserializer::from_str(text))
                .map_err(|error: serde_yaml::Error| error.to_string()),
            Self::Json => {
                let mut deserializer = serde_json::Deserializer::from_str(text);
                let value = seed.deserialize(&mut deserializer);
                value
                    .and_then(|value| deserializer.end().map(|()| value))
                    .map_err(|error: serde_json::Error| error.to_string())
            }
        }
    }
}

/// Adds the turn, from 1, to an error. The path of the YAML parser counts from 0, so it is removed.
fn in_turn(turn: usize, reason: String) -> String {
    let Some(place) = turn.checked_sub(1) else { return reason };
    let in_it = reason
        .strip_prefix(&format!("turns[{place}]"))
        .map(|remainder| remainder.trim_start_matches(['.', ':', ' ']));
    format!("turn {turn}: {}", in_it.unwrap_or(&reason))
}

fn check_version(version: Option<u64>, label: &str) -> Result<(), ScriptError> {
    let wrong = |found, remedy| Err(ScriptError::Version { script: label.to_owned(), found, remedy });
    match version {
        Some(VERSION) => Ok(()),
        Some(newer) if newer > VERSION => wrong(newer, "update this program"),
        Some(older) => wrong(older, "write `version: 1`"),
        None => Err(ScriptError::Invalid {
            script: label.to_owned(),
            reason: "the field `version` is missing; begin the script with `version: 1`".to_owned(),
        }),
    }
}

/// Gives each tool call without an id the id `toolu_script_N`. N counts all tool calls of the script from 1, so ids do not depend on
/// where a revived session continues.
fn assign_call_ids(turns: &mut [ScriptTurn]) -> Result<(), String> {
    let mut owners: HashMap<String, usize> = HashMap::new();
    let mut count = 0_usize;
    for (turn, content) in turns.iter_mut().map(|turn| &mut turn.content).enumerate() {
        for (index, item) in content.iter_mut().enumerate() {
            let ScriptBlock::ToolUse { id, .. } = item else { continue };
            count += 1;
            let id = id.get_or_insert_with(|| format!("toolu_script_{count}"));
            if let Some(owner) = owners.insert(id.clone(), turn + 1) {
                return Err(format!(
                    "turn {}, content[{index}].tool_use: the id `{id}` belongs to a call of turn {owner} \
                     already; give each call its own, or none",
                    turn + 1
                ));
            }
        }
    }
    Ok(())
}

/// Parses a script's turns. The cell has the number of the current turn, from 1, for errors.
struct ScriptSeed<'c>(&'c Cell<usize>);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum ScriptField {
    Version,
    Name,
    Turns,
}

impl<'de> DeserializeSeed<'de> for ScriptSeed<'_> {
    type Value = (Option<String>, Vec<ScriptTurn>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ScriptSeed<'_> {
    type Value = (Option<String>, Vec<ScriptTurn>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a script with `version` and `turns`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut version, mut name, mut turns) = (None, None, None);
        while let Some(field) = map.next_key()? {
            let twice = match field {
                ScriptField::Version => version.replace(map.next_value::<u64>()?).map(|_| "version"),
                ScriptField::Name => name.replace(map.next_value::<Option<String>>()?).map(|_| "name"),
                ScriptField::Turns => turns.replace(map.next_value_seed(TurnsSeed(self.0))?).map(|_| "turns"),
            };
            if let Some(field) = twice {
                return Err(de::Error::duplicate_field(field));
            }
        }
        let turns = turns.ok_or_else(|| de::Error::missing_field("turns"))?;
        Ok((name.flatten(), turns))
    }
}

struct TurnsSeed<'c>(&'c Cell<usize>);

impl<'de> DeserializeSeed<'de> for TurnsSeed<'_> {
    type Value = Vec<ScriptTurn>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<ScriptTurn>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for TurnsSeed<'_> {
    type Value = Vec<ScriptTurn>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of turns")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<ScriptTurn>, A::Error> {
        let mut turns = Vec::new();
        loop {
            self.0.set(turns.len() + 1);
            let Some(turn) = seq.next_element()? else { break };
            if turns.len() == MAX_TURNS {
                return Err(de::Error::custom(format!("a script may have {MAX_TURNS} turns at most")));
            }
            turns.push(turn);
        }
        self.0.set(0);
        Ok(turns)
    }
}

/// The first pass: reads the version and checks the expanded size. So a newer format is reported as such and not as a syntax error.
struct HeaderSeed<'b>(&'b Cell<usize>);

impl<'de> DeserializeSeed<'de> for HeaderSeed<'_> {
    type Value = Option<u64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<u64>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeaderSeed<'_> {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a script with `version` and `turns`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<u64>, A::Error> {
        let mut version = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == "version" {
                version = Some(map.next_value()?);
            } else {
                map.next_value_seed(SizeBudget(self.0))?;
            }
        }
        Ok(version)
    }
}

/// Subtracts the size of a value from the budget: its texts, and a constant for each node.
struct SizeBudget<'b>(&'b Cell<usize>);

/// The size of a node without text: about its size in memory.
const NODE_BYTES: usize = 32;

impl SizeBudget<'_> {
    fn spend<E: de::Error>(&self, bytes: usize) -> Result<(), E> {
        let remaining = self.0.get().checked_sub(bytes.saturating_add(NODE_BYTES));
        self.0.set(remaining.ok_or_else(|| {
            E::custom(format!(
                "the script stands for more than {MAX_EXPANDED_BYTES} bytes; use fewer aliases and nodes"
            ))
        })?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for SizeBudget<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for SizeBudget<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, a list or a map, without tags")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        self.spend(0)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        self.spend(0)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        self.spend(0)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        self.spend(0)
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.spend(0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.spend(text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.spend(0)?;
        while seq.next_element_seed(SizeBudget(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.spend(0)?;
        while map.next_key_seed(SizeBudget(self.0))?.is_some() {
            map.next_value_seed(SizeBudget(self.0))?;
        }
        Ok(())
    }
}

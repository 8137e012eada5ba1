//! Settings of sessions' skills: how the model gets them, and what they may do.

use std::collections::BTreeMap;

use crate::config::keys;
use conjure_conversation::{SkillActivation, SkillDelivery};
use conjure_toolbox::{AllowedToolsPolicy, Interpreters, MAX_ACTIVE_SKILLS};
use toml::{Table, Value};

/// The largest limit of active skills. No model context has room for more.
const MAX_LIMIT: usize = 256;

/// How sessions use their skills, unless their specs say otherwise. A `None` leaves the choice to the layer below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillSettings {
    /// How the model gets a skill's instructions. Default: it loads the skill with a tool.
    pub activation: Option<SkillActivation>,
    /// Where the instructions of a loaded skill are put. Default: in the top-level instructions.
    pub delivery: Option<SkillDelivery>,
    /// How many skills of a session may be active at the same time. Default: 8.
    pub max_active: Option<usize>,
    /// Whether the `allowed-tools` of loaded skills replace the user's approval. Default: they do not.
    pub allowed_tools: Option<AllowedToolsPolicy>,
    /// The programs that run scripts of these extensions. They are merged over the default table ([`Interpreters`]). With
    /// an empty list, the extension counts as unknown.
    pub interpreters: BTreeMap<String, Vec<String>>,
}

impl SkillSettings {
    /// Merges these settings over `lower`.
    #[must_use]
    pub fn merged_over(self, lower: Self) -> Self {
        let mut interpreters = lower.interpreters;
        interpreters.extend(self.interpreters);
        Self {
            activation: self.activation.or(lower.activation),
            delivery: self.delivery.or(lower.delivery),
            max_active: self.max_active.or(lower.max_active),
            allowed_tools: self.allowed_tools.or(lower.allowed_tools),
            interpreters,
        }
    }

    /// The interpreters of scripts.
    pub(crate) fn interpreter_table(&self) -> Interpreters {
        let with =
            |table: Interpreters, (extension, argv): (&String, &Vec<String>)| table.with(extension, argv);
        self.interpreters.iter().fold(Interpreters::default(), with)
    }

    /// How many skills may be active at the same time.
    pub(crate) fn active_limit(&self) -> usize {
        self.max_active.unwrap_or(MAX_ACTIVE_SKILLS)
    }

    /// Checks the values.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.max_active {
            Some(0) => Err("`max_active` must be at least 1".to_owned()),
            Some(count) if count > MAX_LIMIT => {
                Err(format!("`max_active`: {count} is more than {MAX_LIMIT}"))
            }
            _ => Ok(()),
        }
    }
}

/// Parses the table `[skills]` of the file.
pub(crate) fn parse(table: &Table) -> Result<SkillSettings, String> {
    keys::check(table, "skills")?;
    let word = |key: &str| match table.get(key) {
        None => Ok(None),
        Some(Value::String(word)) => Ok(Some(word.as_str())),
        Some(other) => Err(format!("`{key}`: a word is needed, not a {}", other.type_str())),
    };
    let in_key = |key: &'static str| move |reason: String| format!("`{key}`: {reason}");
    let max_active = match table.get("max_active") {
        None => None,
        Some(Value::Integer(count)) => {
            Some(usize::try_from(*count).map_err(|_| format!("`max_active`: {count} is less than 1"))?)
        }
        Some(other) => {
            return Err(format!("`max_active`: a whole number is needed, not a {}", other.type_str()));
        }
    };
    let settings = SkillSettings {
        activation: word("activation")?.map(parse_activation).transpose().map_err(in_key("activation"))?,
        delivery: word("delivery")?.map(parse_delivery).transpose().map_err(in_key("delivery"))?,
        max_active,
        allowed_tools: word("allowed_tools")?
            .map(parse_allowed_tools)
            .transpose()
            .map_err(in_key("allowed_tools"))?,
        interpreters: interpreters(table.get("interpreters")).map_err(in_key("interpreters"))?,
    };
    settings.check().map(|()| settings)
}

/// Parses the interpreters, such as `R = ["Rscript"]` or `R = "Rscript"`.
fn interpreters(value: Option<&Value>) -> Result<BTreeMap<String, Vec<String>>, String> {
    let table = match value {
        None => return Ok(BTreeMap::new()),
        Some(Value::Table(table)) => table,
        Some(other) => return Err(format!("a table is needed, not a {}", other.type_str())),
    };
    let program = |(extension, value): (&String, &Value)| {
        let wrong = || format!("`{extension}`: a program is needed, or a list of it and its arguments");
        let argv = match value {
            Value::String(program) => vec![program.clone()],
            Value::Array(argv) => argv
                .iter()
                .map(|word| word.as_str().map(str::to_owned).ok_or_else(wrong))
                .collect::<Result<_, _>>()?,
            _ => return Err(wrong()),
        };
        let extension = extension.trim_start_matches('.');
        match extension.is_empty() || argv.iter().any(String::is_empty) {
            true => Err(wrong()),
            false => Ok((extension.to_owned(), argv)),
        }
    };
    table.iter().map(program).collect()
}

/// Parses how the model gets skills: `load` or `view`.
///
/// # Errors
///
/// For any other word.
pub fn parse_activation(word: &str) -> Result<SkillActivation, String> {
    match word {
        "load" => Ok(SkillActivation::Load),
        "view" => Ok(SkillActivation::View),
        _ => Err(format!("`{word}` is neither `load` nor `view`")),
    }
}

fn parse_delivery(word: &str) -> Result<SkillDelivery, String> {
    match word {
        "instructions" => Ok(SkillDelivery::Instructions),
        "result" => Ok(SkillDelivery::Result),
        _ => Err(format!("`{word}` is neither `instructions` nor `result`")),
    }
}

fn parse_allowed_tools(word: &str) -> Result<AllowedToolsPolicy, String> {
    match word {
        "honour" => Ok(AllowedToolsPolicy::Honour),
        "ignore" => Ok(AllowedToolsPolicy::Ignore),
        _ => Err(format!("`{word}` is neither `honour` nor `ignore`")),
    }
}

//! Settings of sessions' skills: how the model gets at them, and what they may do.

use std::collections::BTreeMap;

use conjure_conversation::{Activation, Delivery};
use conjure_skill::nearest;
use conjure_toolbox::{AllowedToolsPolicy, Interpreters, MOST_ACTIVE};
use toml::{Table, Value};

/// The keys of `[skills]`.
const KEYS: [&str; 5] = ["activation", "delivery", "max_active", "allowed_tools", "interpreters"];

/// More than any context takes.
const MOST: usize = 256;

/// How sessions use their skills, unless they say otherwise. What is `None` is left to the layer below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillSettings {
    /// How the model gets at a skill's instructions: it loads the skill, unless this is set.
    pub activation: Option<Activation>,
    /// Where the instructions of a loaded skill stand: in the top-level instructions, unless this is set.
    pub delivery: Option<Delivery>,
    /// How many skills of a session may be loaded at a time: 8, unless this is set.
    pub max_active: Option<usize>,
    /// Whether the `allowed-tools` of loaded skills stand for a person's answer: they do not, unless this is set.
    pub allowed_tools: Option<AllowedToolsPolicy>,
    /// What scripts of these extensions are run with, over the usual table ([`Interpreters`]). No program: as files of any other
    /// extension.
    pub interpreters: BTreeMap<String, Vec<String>>,
}

impl SkillSettings {
    /// These laid over `lower`.
    #[must_use]
    pub fn over(self, lower: Self) -> Self {
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

    /// What scripts are run with.
    pub(crate) fn table(&self) -> Interpreters {
        let with =
            |table: Interpreters, (extension, argv): (&String, &Vec<String>)| table.with(extension, argv);
        self.interpreters.iter().fold(Interpreters::default(), with)
    }

    /// How many may be loaded at a time.
    pub(crate) fn most_active(&self) -> usize {
        self.max_active.unwrap_or(MOST_ACTIVE)
    }

    /// Looks whether they can be used.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.max_active {
            Some(0) => Err("`max_active` must be at least 1".to_owned()),
            Some(count) if count > MOST => Err(format!("`max_active`: {count} is more than {MOST}")),
            _ => Ok(()),
        }
    }
}

/// The table `[skills]` of the file.
pub(super) fn parse(table: &Table) -> Result<SkillSettings, String> {
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let near = nearest(key, KEYS).map(|near| format!(", did you mean `{near}`?"));
        return Err(format!("there is no `{key}`{}", near.unwrap_or_default()));
    }
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

/// `R = ["Rscript"]`, or `R = "Rscript"`.
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

/// How the model gets at skills, in a word: `load` or `view`.
///
/// # Errors
/// When it is another word.
pub fn parse_activation(word: &str) -> Result<Activation, String> {
    match word {
        "load" => Ok(Activation::Load),
        "view" => Ok(Activation::View),
        _ => Err(format!("`{word}` is neither `load` nor `view`")),
    }
}

fn parse_delivery(word: &str) -> Result<Delivery, String> {
    match word {
        "instructions" => Ok(Delivery::Instructions),
        "result" => Ok(Delivery::Result),
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

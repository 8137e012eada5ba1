//! Settings of sessions' skills: how the model gets them, and what they may do.

use std::collections::BTreeMap;

use conjure_conversation::{SkillActivation, SkillDelivery};
use conjure_toolbox::{AllowedToolsPolicy, Interpreters, MAX_ACTIVE_SKILLS};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::config::values;

/// The largest limit of active skills. No model context has room for more.
const MAX_LIMIT: usize = 256;

/// How sessions use their skills, unless their specs say otherwise. A `None` leaves the choice to the layer below.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, expecting = "a table")]
pub struct SkillSettings {
    /// How the model gets a skill's instructions. Default: it loads the skill with a tool.
    pub activation: Option<SkillActivation>,
    /// Where the instructions of a loaded skill are put. Default: in the top-level instructions.
    pub delivery: Option<SkillDelivery>,
    /// How many skills of a session may be active at the same time. Default: 8.
    pub max_active: Option<usize>,
    /// Whether the `allowed-tools` of loaded skills replace the user's approval. Default: they do not.
    #[serde(deserialize_with = "allowed_tools")]
    pub allowed_tools: Option<AllowedToolsPolicy>,
    /// The programs that run scripts of these extensions. They are merged over the default table ([`Interpreters`]). With
    /// an empty list, the extension counts as unknown.
    #[serde(deserialize_with = "interpreters")]
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

/// The interpreters, such as `R = ["Rscript"]` or `R = "Rscript"`.
fn interpreters<'de, D>(deserializer: D) -> Result<BTreeMap<String, Vec<String>>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a program is needed, or a list of it and its arguments")]
    enum Program {
        Alone(String),
        WithArguments(Vec<String>),
    }
    let program = |(extension, program): (String, Program)| {
        let argv = match program {
            Program::Alone(program) => vec![program],
            Program::WithArguments(argv) => argv,
        };
        let extension = extension.trim_start_matches('.').to_owned();
        match extension.is_empty() || argv.iter().any(String::is_empty) {
            true => {
                Err(D::Error::custom(format!("`{extension}`: an extension and its program are not empty")))
            }
            false => Ok((extension, argv)),
        }
    };
    BTreeMap::deserialize(deserializer)?.into_iter().map(program).collect()
}

/// Whether `allowed-tools` pre-approve: `honour` or `ignore`.
fn allowed_tools<'de, D>(deserializer: D) -> Result<Option<AllowedToolsPolicy>, D::Error>
where
    D: Deserializer<'de>,
{
    values::parsed_text(deserializer, |word| match word {
        "honour" => Ok(AllowedToolsPolicy::Honour),
        "ignore" => Ok(AllowedToolsPolicy::Ignore),
        _ => Err(format!("`{word}` is neither `honour` nor `ignore`")),
    })
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

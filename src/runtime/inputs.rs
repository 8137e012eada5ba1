//! The inputs of a session: what its skills' manifests ask for, and what was given.
//!
//! They are checked when a session is opened. Those that no manifest calls sensitive are recorded, and shown to the model; of the
//! others only the names are. Commands have all of them as variables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use conjure_base::Redactor;
use conjure_prompt::escape;
use conjure_skill::{InputProblem, Inputs, Manifest, Skill, input_variable, nearest};
use serde_json::Value;

use super::error::RuntimeError;
use super::given::Given;
use super::spec::Choice;
use crate::context::ContextOptions;

/// So much of a value is shown to the model; commands have all of it.
const SHOWN_CHARS: usize = 2000;

/// Something about the inputs that a session was to be opened with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputFault {
    /// A skill's manifest says otherwise.
    #[error("the skill `{skill}`: {problem}")]
    Skill {
        /// Its name.
        skill: String,
        /// What is wrong.
        problem: InputProblem,
    },
    /// No skill of the session has such an input.
    #[error("no skill of the session has an input `{name}`{}", nearest.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default())]
    Unknown {
        /// The name that was given.
        name: String,
        /// The name that may have been meant.
        nearest: Option<String>,
    },
    /// Commands would have two values by one variable.
    #[error("`{first}` and `{second}` would both be the variable `{variable}`")]
    SameVariable {
        /// The variable.
        variable: String,
        /// What has it.
        first: String,
        /// What would have it, too.
        second: String,
    },
    /// No variable can hold the value.
    #[error("the input `{name}` has a NUL character, which no variable can hold")]
    Nul {
        /// The name of the input.
        name: String,
    },
}

/// The inputs of a session that is opened, divided.
#[derive(Debug, Default)]
pub(crate) struct Divided {
    /// What may be recorded, defaults included.
    pub(crate) recorded: Inputs,
    /// The names of the sensitive ones that were given.
    pub(crate) withheld: BTreeSet<String>,
    /// The names of variables that manifests call sensitive.
    pub(crate) hidden_variables: BTreeSet<String>,
}

/// Checks what was given against the manifests of a session's skills, and divides it.
///
/// That a required input is missing is an error where the host has named the skills; of a whole catalog, the session may use those
/// that need nothing.
pub(crate) fn divide(skills: &[Arc<Skill>], choice: &Choice, given: &Given) -> Result<Divided, RuntimeError> {
    let values = given.inputs();
    let mut faults = Vec::new();
    let mut divided = Divided::default();
    for (skill, manifest) in manifests(skills) {
        let missing = manifest.missing_inputs(values).filter(|_| matches!(choice, Choice::Named(_)));
        faults.extend(
            missing
                .chain(manifest.mismatched_inputs(values))
                .map(|problem| InputFault::Skill { skill: skill.name().to_string(), problem }),
        );
        for (name, value) in manifest.resolve_inputs(values) {
            divided.recorded.entry(name).or_insert(value);
        }
    }
    divided.hidden_variables = hidden_variables(skills);
    let known: BTreeSet<&str> =
        manifests(skills).flat_map(|(_, manifest)| manifest.inputs()).map(|input| input.name()).collect();
    for name in values.keys().filter(|name| !known.contains(&name.as_str())) {
        let nearest = nearest(name, known.iter().copied()).map(str::to_owned);
        faults.push(InputFault::Unknown { name: name.clone(), nearest });
    }
    let mut variables: BTreeMap<String, String> =
        given.variables().map(|name| (name.to_owned(), format!("variable {name}"))).collect();
    for (name, value) in &divided.recorded {
        let variable = input_variable(name);
        if let Some(first) = variables.insert(variable.clone(), format!("input {name}")) {
            faults.push(InputFault::SameVariable { variable, first, second: format!("input {name}") });
        }
        if text_of(value).contains('\0') {
            faults.push(InputFault::Nul { name: name.clone() });
        }
    }
    if !faults.is_empty() {
        return Err(RuntimeError::Inputs { faults });
    }
    let sensitive = sensitive(skills);
    divided.recorded.retain(|name, _| !sensitive.contains(name));
    divided.withheld = values.keys().filter(|name| sensitive.contains(*name)).cloned().collect();
    Ok(divided)
}

/// Everything that commands are to have of a session's inputs, and what of it must not be seen.
#[derive(Default)]
pub(crate) struct Effective {
    /// Variables for commands.
    pub(crate) environment: BTreeMap<String, String>,
    /// What is to be redacted, by what it is.
    pub(crate) secrets: BTreeMap<String, String>,
    /// What the model is told; nothing where there is no input.
    pub(crate) shown: String,
    /// All values.
    pub(crate) values: Inputs,
}

/// The inputs of a session with these skills: those that are recorded, those that were given and are not, and the defaults of
/// sensitive ones.
pub(crate) fn effective(skills: &[Arc<Skill>], recorded: &Inputs, given: &Inputs) -> Effective {
    let sensitive = sensitive(skills);
    let mut values = recorded.clone();
    values.extend(given.clone());
    for (_, manifest) in manifests(skills) {
        for (name, value) in manifest.resolve_inputs(&values) {
            // What is recorded has its defaults, as they were then.
            if sensitive.contains(&name) {
                values.insert(name, value);
            }
        }
    }
    let mut effective = Effective::default();
    for (name, value) in &values {
        effective.environment.insert(input_variable(name), text_of(value));
        if sensitive.contains(name) || !recorded.contains_key(name) {
            effective.secrets.extend(secrets_of(name, value));
        }
    }
    effective.shown = shown(&values, recorded, &sensitive);
    effective.values = values;
    effective
}

/// Keeps out of what leaves what the manifests of these skills call sensitive, of these inputs and variables.
#[must_use]
pub fn redactor_of_inputs(
    skills: &[Arc<Skill>],
    inputs: &Inputs,
    variables: &BTreeMap<String, String>,
) -> Redactor {
    let names = sensitive(skills);
    let of_inputs = inputs.iter().filter(|(name, _)| names.contains(*name));
    let of_inputs = of_inputs.flat_map(|(name, value)| secrets_of(name, value));
    let hidden = hidden_variables(skills).into_iter().filter_map(|name| {
        let value = variables.get(&name)?.clone();
        Some((name, value))
    });
    let secrets = of_inputs.chain(hidden).collect();
    ContextOptions { secrets, ..ContextOptions::default() }.redactor()
}

/// The texts by which a value may be recognised, by names that tell whose they are.
pub(crate) fn secrets_of(name: &str, value: &Value) -> Vec<(String, String)> {
    fn collect(name: &str, value: &Value, secrets: &mut Vec<(String, String)>) {
        match value {
            Value::String(text) => secrets.push((name.to_owned(), text.clone())),
            Value::Number(number) => secrets.push((name.to_owned(), number.to_string())),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    collect(&format!("{name}/{index}"), item, secrets);
                }
            }
            Value::Object(fields) => {
                for (index, field) in fields.values().enumerate() {
                    collect(&format!("{name}/{index}"), field, secrets);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
    let mut secrets = Vec::new();
    collect(&format!("input {name}"), value, &mut secrets);
    if value.is_array() || value.is_object() {
        secrets.push((format!("input {name} whole"), value.to_string()));
    }
    secrets
}

fn manifests(skills: &[Arc<Skill>]) -> impl Iterator<Item = (&Arc<Skill>, &Manifest)> {
    skills.iter().filter_map(|skill| Some((skill, skill.manifest()?)))
}

/// The names of variables that at least one skill calls sensitive.
pub(crate) fn hidden_variables(skills: &[Arc<Skill>]) -> BTreeSet<String> {
    let variables = manifests(skills).flat_map(|(_, manifest)| manifest.env());
    variables.filter(|variable| variable.sensitive()).map(|variable| variable.name().to_owned()).collect()
}

/// The names of inputs that at least one skill calls sensitive.
fn sensitive(skills: &[Arc<Skill>]) -> BTreeSet<String> {
    let inputs = manifests(skills).flat_map(|(_, manifest)| manifest.inputs());
    inputs.filter(|input| input.sensitive()).map(|input| input.name().to_owned()).collect()
}

/// The value as a variable holds it: a text as it is, others as JSON.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What the model is told of the inputs: the values that may be seen, and the variables that scripts read.
fn shown(values: &Inputs, recorded: &Inputs, sensitive: &BTreeSet<String>) -> String {
    if values.is_empty() {
        return String::new();
    }
    let mut shown = "<inputs>\nWhat was given for this session. Commands and scripts have each as the variable that is named.\n".to_owned();
    for (name, value) in values {
        let variable = input_variable(name);
        let _ = write!(
            shown,
            "<input>\n<name>{}</name>\n<variable>{}</variable>\n",
            escape(name),
            escape(&variable)
        );
        if recorded.contains_key(name) && !sensitive.contains(name) {
            let text = text_of(value);
            let mut cut: String = text.chars().take(SHOWN_CHARS).collect();
            if cut.len() < text.len() {
                cut.push('…');
            }
            let _ = writeln!(shown, "<value>{}</value>", escape(&cut));
        } else {
            shown.push_str(
                "<value-withheld>it is sensitive: use the variable, and do not print it</value-withheld>\n",
            );
        }
        shown.push_str("</input>\n");
    }
    shown.push_str("</inputs>");
    shown
}

#[cfg(test)]
mod tests;

//! The inputs of a session: what its skills' manifests ask for, and what was given.
//!
//! They are checked when a session is opened, and when it is given more. Those that no manifest calls sensitive are recorded, and
//! shown to the model; of the others only the names are. Commands have all of them as variables. A default is its own skill's alone: only
//! what was given is recorded, and is everybody's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use conjure_base::{Redactor, SHORTEST_SECRET};
use conjure_conversation::{Activation, Profile};
use conjure_prompt::escape;
use conjure_skill::{InputProblem, Inputs, Manifest, Skill, input_text, input_variable, nearest};
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
    /// Something of a sensitive value would occur everywhere, so it cannot be redacted.
    #[error(
        "the input `{name}` is sensitive, and a text or number of fewer than {SHORTEST_SECRET} bytes in it is too short to be kept out of what is told"
    )]
    TooShort {
        /// The name of the input.
        name: String,
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
    /// What may be recorded.
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
    for (skill, manifest) in manifests(skills) {
        let missing = manifest.missing_inputs(values).filter(|_| matches!(choice, Choice::Named(_)));
        let problems = missing.chain(manifest.mismatched_inputs(values));
        faults.extend(problems.map(|problem| InputFault::Skill { skill: skill.name().to_string(), problem }));
    }
    faults.extend(faults_of_values(skills, values));
    faults.extend(collisions(given.variables(), values.keys(), |_| true));
    if !faults.is_empty() {
        return Err(RuntimeError::Inputs { faults });
    }
    let sensitive = sensitive(skills);
    let (withheld, recorded): (Inputs, Inputs) =
        values.clone().into_iter().partition(|(name, _)| sensitive.contains(name));
    Ok(Divided {
        recorded,
        withheld: withheld.into_keys().collect(),
        hidden_variables: hidden_variables(skills),
    })
}

/// Checks what a recorded session is given beside its record. What is recorded was checked then.
pub(crate) fn check_given(
    skills: &[Arc<Skill>],
    profile: &Profile,
    given: &Given,
) -> Result<(), RuntimeError> {
    let values = given.inputs();
    let mut faults = Vec::new();
    for (skill, manifest) in manifests(skills) {
        let problems = manifest.mismatched_inputs(values);
        faults.extend(problems.map(|problem| InputFault::Skill { skill: skill.name().to_string(), problem }));
    }
    faults.extend(faults_of_values(skills, values));
    let variables: BTreeSet<&str> =
        given.variables().chain(profile.environment.keys().map(String::as_str)).collect();
    let names: BTreeSet<&String> = profile.inputs.keys().chain(values.keys()).collect();
    faults.extend(collisions(variables, names, |name| values.contains_key(name)));
    if faults.is_empty() { Ok(()) } else { Err(RuntimeError::Inputs { faults }) }
}

/// What is wrong with values that were given, whichever skill they are for.
fn faults_of_values(skills: &[Arc<Skill>], values: &Inputs) -> Vec<InputFault> {
    let known: BTreeSet<&str> =
        manifests(skills).flat_map(|(_, manifest)| manifest.inputs()).map(|input| input.name()).collect();
    let sensitive = sensitive(skills);
    let mut faults = Vec::new();
    for name in values.keys().filter(|name| !known.contains(&name.as_str())) {
        let nearest = nearest(name, known.iter().copied()).map(str::to_owned);
        faults.push(InputFault::Unknown { name: name.clone(), nearest });
    }
    for (name, value) in values {
        if input_text(value).contains('\0') {
            faults.push(InputFault::Nul { name: name.clone() });
        }
        let is_short = |text: &String| !text.is_empty() && text.len() < SHORTEST_SECRET;
        if sensitive.contains(name) && texts_of(value).iter().any(is_short) {
            faults.push(InputFault::TooShort { name: name.clone() });
        }
    }
    faults
}

/// Where commands would have two values by one variable, one of them of an input that is looked at.
fn collisions<'n>(
    variables: impl IntoIterator<Item = &'n str>,
    names: impl IntoIterator<Item = &'n String>,
    is_looked_at: impl Fn(&str) -> bool,
) -> Vec<InputFault> {
    let mut holders: BTreeMap<String, (String, bool)> =
        variables.into_iter().map(|name| (name.to_owned(), (format!("variable {name}"), false))).collect();
    let mut faults = Vec::new();
    for name in names {
        let (variable, new) = (input_variable(name), is_looked_at(name));
        let second = format!("input {name}");
        if let Some((first, old)) = holders.insert(variable.clone(), (second.clone(), new))
            && (old || new)
        {
            faults.push(InputFault::SameVariable { variable, first, second });
        }
    }
    faults
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

/// The inputs of a session with these skills: those that are recorded, and those that were given and are not. `variables` are what
/// commands have besides.
///
/// A default is its own skill's, and is none of the others' business: its scripts have it (`skills.run_script`). Where the model has no
/// tool for scripts, all commands have the defaults of which nothing else is called the same.
pub(crate) fn effective(
    skills: &[Arc<Skill>],
    profile: &Profile,
    given: &Inputs,
    variables: &BTreeMap<String, String>,
) -> Effective {
    let sensitive = sensitive(skills);
    let recorded = &profile.inputs;
    let mut values = recorded.clone();
    values.extend(given.clone());
    let mut effective = Effective::default();
    let mut visible = BTreeSet::new();
    for (name, value) in &values {
        effective.environment.insert(input_variable(name), input_text(value));
        if sensitive.contains(name) || !recorded.contains_key(name) {
            // What a manifest says by itself stands in the skill's files: that is no secret.
            effective.secrets.extend(secrets_of(name, value));
        } else {
            visible.insert(name.clone());
        }
    }
    let mut told = values.clone();
    if profile.activation == Activation::View {
        let taken = |name: &str| effective.environment.contains_key(name) || variables.contains_key(name);
        let defaults = free_defaults(skills, taken);
        for (variable, (name, value)) in defaults {
            effective.environment.insert(variable, input_text(&value));
            visible.insert(name.clone());
            told.insert(name, value);
        }
    }
    effective.shown = shown(&told, &visible);
    effective.values = values;
    effective
}

/// The defaults that can be everybody's, with their names, by variables that nothing else has.
fn free_defaults(
    skills: &[Arc<Skill>],
    is_taken: impl Fn(&str) -> bool,
) -> BTreeMap<String, (String, Value)> {
    let mut defaults: BTreeMap<String, Option<(String, Value)>> = BTreeMap::new();
    for (_, manifest) in manifests(skills) {
        for default in manifest.resolve_inputs(&Inputs::new()) {
            let variable = input_variable(&default.0);
            if is_taken(&variable) || input_text(&default.1).contains('\0') {
                continue;
            }
            // Of two that are not the same neither is.
            let same = defaults.get(&variable).is_none_or(|other| other.as_ref() == Some(&default));
            defaults.insert(variable, same.then_some(default));
        }
    }
    defaults.into_iter().filter_map(|(variable, default)| Some((variable, default?))).collect()
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
    let mut texts = texts_of(value);
    keys_of(value, &mut texts);
    let mut secrets: Vec<(String, String)> = Vec::with_capacity(texts.len() + 1);
    match value {
        Value::Array(_) | Value::Object(_) => {
            let parts = texts.into_iter().enumerate();
            secrets.extend(parts.map(|(index, text)| (format!("input {name}/{index}"), text)));
            secrets.push((format!("input {name} whole"), value.to_string()));
        }
        _ => secrets.extend(texts.into_iter().map(|text| (format!("input {name}"), text))),
    }
    secrets
}

/// The texts and numbers in a value, at every depth.
fn texts_of(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Number(number) => vec![number.to_string()],
        Value::Array(items) => items.iter().flat_map(texts_of).collect(),
        Value::Object(fields) => fields.values().flat_map(texts_of).collect(),
        Value::Null | Value::Bool(_) => Vec::new(),
    }
}

/// Adds what the fields in a value are called. Names that are too short to be redacted are left out: they are seldom what is secret.
fn keys_of(value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| keys_of(item, keys)),
        Value::Object(fields) => {
            for (key, field) in fields {
                keys.extend((key.len() >= SHORTEST_SECRET).then(|| key.clone()));
                keys_of(field, keys);
            }
        }
        _ => {}
    }
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

/// What the model is told of the inputs: the values that may be seen, and the variables that scripts read.
fn shown(values: &Inputs, visible: &BTreeSet<String>) -> String {
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
        if visible.contains(name) {
            let text = input_text(value);
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

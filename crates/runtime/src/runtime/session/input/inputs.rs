//! The inputs of a session: the inputs that the manifests of its skills declare, and the given values.
//!
//! The values are checked when a session is opened, and when further values are given.
//!
//! - A value that no manifest declares sensitive is recorded and shown to the model.
//! - Of a sensitive value, only the name is recorded and shown.
//! - Commands get all values as variables.
//! - A default belongs to its own skill. Only given values are recorded and visible to all skills.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use conjure_base::text::{strip_deceptive, truncate};
use conjure_base::{MIN_SECRET_BYTES, Redactor};
use conjure_conversation::{SessionProfile, SkillActivation};
use conjure_prompt::escape;
use conjure_skill::{Inputs, Manifest, Skill, closest_match, input_text, input_variable};
use serde_json::Value;

use crate::context::ContextOptions;
use crate::runtime::error::RuntimeError;
use crate::runtime::session::input::input_error::InputError;
use crate::runtime::session::input::session_secrets::SessionSecrets;
use crate::runtime::session::input::value_texts::{secrets_in_value, texts_in_value};
use crate::runtime::session::select_skills::SkillSelection;

/// The most characters of a value that are shown to the model. Commands get the complete value.
const SHOWN_CHARS: usize = 2000;

/// The inputs of a new session, split by what may be recorded.
#[derive(Debug, Default)]
pub(crate) struct SplitInputs {
    /// The values that may be recorded.
    pub(crate) recorded: Inputs,
    /// The names of the sensitive inputs that were given.
    pub(crate) sensitive: BTreeSet<String>,
    /// The names of variables that manifests declare sensitive.
    pub(crate) sensitive_variables: BTreeSet<String>,
}

/// Checks the given inputs against the manifests of a session's skills, and splits them.
///
/// A missing required input is an error only if the embedder named the skills. If the session has a whole catalog, it may
/// still use the skills whose inputs are complete.
pub(crate) fn split(
    skills: &[Arc<Skill>],
    choice: &SkillSelection,
    given: &SessionSecrets,
) -> Result<SplitInputs, RuntimeError> {
    let values = given.inputs();
    let mut errors = Vec::new();
    for (skill, manifest) in manifests(skills) {
        let missing = manifest.missing_inputs(values).filter(|_| matches!(choice, SkillSelection::Named(_)));
        let problems = missing.chain(manifest.mismatched_inputs(values));
        errors.extend(problems.map(|problem| InputError::Skill { skill: skill.name().to_string(), problem }));
    }
    errors.extend(value_errors(skills, values));
    errors.extend(variable_collisions(given.variables(), values.keys(), |_| true));
    if !errors.is_empty() {
        return Err(RuntimeError::Inputs { errors });
    }
    let sensitive = sensitive_inputs(skills);
    let (withheld, recorded): (Inputs, Inputs) =
        values.clone().into_iter().partition(|(name, _)| sensitive.contains(name));
    Ok(SplitInputs {
        recorded,
        sensitive: withheld.into_keys().collect(),
        sensitive_variables: sensitive_variables(skills),
    })
}

/// Checks the inputs that an existing session is given in addition to its recorded ones, which were checked before.
pub(crate) fn check_secrets(
    skills: &[Arc<Skill>],
    profile: &SessionProfile,
    given: &SessionSecrets,
) -> Result<(), RuntimeError> {
    let values = given.inputs();
    let mut errors = Vec::new();
    for (skill, manifest) in manifests(skills) {
        let problems = manifest.mismatched_inputs(values);
        errors.extend(problems.map(|problem| InputError::Skill { skill: skill.name().to_string(), problem }));
    }
    errors.extend(value_errors(skills, values));
    let variables: BTreeSet<&str> =
        given.variables().chain(profile.environment.keys().map(String::as_str)).collect();
    let names: BTreeSet<&String> = profile.inputs.keys().chain(values.keys()).collect();
    errors.extend(variable_collisions(variables, names, |name| values.contains_key(name)));
    if errors.is_empty() { Ok(()) } else { Err(RuntimeError::Inputs { errors }) }
}

/// The errors in the given values.
fn value_errors(skills: &[Arc<Skill>], values: &Inputs) -> Vec<InputError> {
    let known: BTreeSet<&str> =
        manifests(skills).flat_map(|(_, manifest)| manifest.inputs()).map(|input| input.name()).collect();
    let sensitive = sensitive_inputs(skills);
    let mut errors = Vec::new();
    for name in values.keys().filter(|name| !known.contains(&name.as_str())) {
        let nearest = closest_match(name, known.iter().copied()).map(str::to_owned);
        errors.push(InputError::Unknown { name: name.clone(), nearest });
    }
    for (name, value) in values {
        if input_text(value).contains('\0') {
            errors.push(InputError::Nul { name: name.clone() });
        }
        let is_short = |text: &String| !text.is_empty() && text.len() < MIN_SECRET_BYTES;
        if sensitive.contains(name) && texts_in_value(value).iter().any(is_short) {
            errors.push(InputError::TooShort { name: name.clone() });
        }
    }
    errors
}

/// The variables that would have two values. Reports only those where an input to be checked is involved.
fn variable_collisions<'n>(
    variables: impl IntoIterator<Item = &'n str>,
    names: impl IntoIterator<Item = &'n String>,
    is_checked: impl Fn(&str) -> bool,
) -> Vec<InputError> {
    let mut holders: BTreeMap<String, (String, bool)> =
        variables.into_iter().map(|name| (name.to_owned(), (format!("variable {name}"), false))).collect();
    let mut errors = Vec::new();
    for name in names {
        let (variable, checks_second) = (input_variable(name), is_checked(name));
        let second = format!("input {name}");
        if let Some((first, checks_first)) = holders.insert(variable.clone(), (second.clone(), checks_second))
            && (checks_first || checks_second)
        {
            errors.push(InputError::SameVariable { variable, first, second });
        }
    }
    errors
}

/// The environment, the secrets and the prompt text that result from a session's inputs.
#[derive(Default)]
pub(crate) struct EffectiveInputs {
    /// Variables for commands.
    pub(crate) environment: BTreeMap<String, String>,
    /// The values to be redacted, each under a name.
    pub(crate) secrets: BTreeMap<String, String>,
    /// The text for the model; empty without inputs.
    pub(crate) prompt_text: String,
    /// All values.
    pub(crate) values: Inputs,
}

/// The inputs of a session with these skills, recorded and unrecorded. `variables` are the other variables of its
/// commands.
///
/// A default belongs to its own skill: only the scripts of the skill see it (`skills.run_script`). If the model has no
/// tool for scripts, all commands see the unambiguous defaults.
pub(crate) fn effective_inputs(
    skills: &[Arc<Skill>],
    profile: &SessionProfile,
    given: &Inputs,
    variables: &BTreeMap<String, String>,
) -> EffectiveInputs {
    let sensitive = sensitive_inputs(skills);
    let recorded = &profile.inputs;
    let mut values = recorded.clone();
    values.extend(given.clone());
    let mut effective = EffectiveInputs::default();
    let mut visible = BTreeSet::new();
    for (name, value) in &values {
        effective.environment.insert(input_variable(name), input_text(value));
        if sensitive.contains(name) || !recorded.contains_key(name) {
            // A manifest's own default is public in the skill's files, so it is not redacted.
            effective.secrets.extend(secrets_in_value(name, value));
        } else {
            visible.insert(name.clone());
        }
    }
    let mut shown_values = values.clone();
    if profile.activation == SkillActivation::View {
        let is_taken = |name: &str| effective.environment.contains_key(name) || variables.contains_key(name);
        let defaults = free_defaults(skills, is_taken);
        for (variable, (name, value)) in defaults {
            effective.environment.insert(variable, input_text(&value));
            visible.insert(name.clone());
            shown_values.insert(name, value);
        }
    }
    effective.prompt_text = prompt_text(&shown_values, &visible);
    effective.values = values;
    effective
}

/// The defaults that all commands may see, by their variables. Variables that are already taken are left out.
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
            // If two defaults of the same variable differ, neither is used.
            let same = defaults.get(&variable).is_none_or(|other| other.as_ref() == Some(&default));
            defaults.insert(variable, same.then_some(default));
        }
    }
    defaults.into_iter().filter_map(|(variable, default)| Some((variable, default?))).collect()
}

/// A redactor for the values that the manifests of these skills declare sensitive.
#[must_use]
pub fn redactor_of_inputs(
    skills: &[Arc<Skill>],
    inputs: &Inputs,
    variables: &BTreeMap<String, String>,
) -> Redactor {
    let names = sensitive_inputs(skills);
    let sensitive = inputs.iter().filter(|(name, _)| names.contains(*name));
    let input_secrets = sensitive.flat_map(|(name, value)| secrets_in_value(name, value));
    let variable_secrets = sensitive_variables(skills).into_iter().filter_map(|name| {
        let value = variables.get(&name)?.clone();
        Some((name, value))
    });
    let secrets = input_secrets.chain(variable_secrets).collect();
    ContextOptions { secrets, ..ContextOptions::default() }.redactor()
}

fn manifests(skills: &[Arc<Skill>]) -> impl Iterator<Item = (&Arc<Skill>, &Manifest)> {
    skills.iter().filter_map(|skill| Some((skill, skill.manifest()?)))
}

/// The names of variables that at least one skill declares sensitive.
pub(crate) fn sensitive_variables(skills: &[Arc<Skill>]) -> BTreeSet<String> {
    let variables = manifests(skills).flat_map(|(_, manifest)| manifest.env());
    variables.filter(|variable| variable.sensitive()).map(|variable| variable.name().to_owned()).collect()
}

/// The names of inputs that at least one skill declares sensitive.
fn sensitive_inputs(skills: &[Arc<Skill>]) -> BTreeSet<String> {
    let inputs = manifests(skills).flat_map(|(_, manifest)| manifest.inputs());
    inputs.filter(|input| input.sensitive()).map(|input| input.name().to_owned()).collect()
}

/// The text for the model: the values that it may see, and the names of the variables that scripts read. It has no hidden text, since a value
/// may be the default of a skill.
fn prompt_text(values: &Inputs, visible: &BTreeSet<String>) -> String {
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
            let _ = writeln!(shown, "<value>{}</value>", escape(&truncate(&text, SHOWN_CHARS + 1)));
        } else {
            shown.push_str(
                "<value-withheld>it is sensitive: use the variable, and do not print it</value-withheld>\n",
            );
        }
        shown.push_str("</input>\n");
    }
    shown.push_str("</inputs>");
    strip_deceptive(&shown).into_owned()
}

#[cfg(test)]
mod tests;

//! The fields of a manifest, one after the other.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use super::reader::Reader;
use super::{Declared, FIELDS, Origin, VERSION};
use crate::diagnostic::{RuleId, Severity};
use crate::manifest::Manifest;
use crate::manifest::execution::{Destructive, Execution};
use crate::manifest::input::{EnvVariable, Input, Need, input_variable};
use crate::manifest::output::{OutputArtifact, OutputFile, OutputPattern, OutputPatternError};
use crate::manifest::path::{self, Base};
use crate::manifest::precondition::{CommandNeed, FileNeed};
use crate::manifest::version::ManifestVersion;
use crate::schema::Schema;
use crate::version::Version;

/// The most inputs, variables, commands, files or outputs of one list.
const MAX_ITEMS: usize = 256;
const MAX_NAME_CHARS: usize = 128;
/// The longest time that a skill may say it takes.
const MAX_TIMEOUT: f64 = 7.0 * 24.0 * 3600.0;
const NEEDS: [(&str, Need); 2] = [("required", Need::Required), ("optional", Need::Optional)];
/// What may stand in a description of any length, the frontmatter's bound aside, is shown to people only.
const DESCRIPTION: &str = "description";

/// The fields, and the findings about them.
pub(super) struct Fields<'r, 'a, 'v> {
    reader: &'r mut Reader<'a>,
    fields: Option<&'v Map<String, Value>>,
}

impl<'r, 'a, 'v> Fields<'r, 'a, 'v> {
    pub(super) fn of(reader: &'r mut Reader<'a>, value: &'v Value) -> Self {
        let fields = reader.mapping(value);
        Self { reader, fields }
    }

    pub(super) const fn reader(&mut self) -> &mut Reader<'a> {
        self.reader
    }

    pub(super) fn manifest_version(&mut self) -> Declared {
        let text = match self.fields.and_then(|fields| fields.get(VERSION)) {
            // What is no mapping was told.
            None if self.reader.has_errors() => return Declared::Unreadable,
            None | Some(Value::Null) => return Declared::Legacy,
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => {
                self.reader.within_key(VERSION, |reader| reader.expected("text such as \"1.0\"", other));
                return Declared::Unreadable;
            }
        };
        match text.trim().parse::<ManifestVersion>() {
            Ok(version) => Declared::Version(version),
            Err(error) => {
                self.reader.within_key(VERSION, |reader| {
                    reader.error(RuleId::ManifestValue, error.to_string());
                });
                Declared::Unreadable
            }
        }
    }

    /// The manifest that the fields make; wanting where there are errors.
    pub(super) fn manifest(mut self, version: ManifestVersion) -> Manifest {
        let empty = Map::new();
        let fields = self.fields.unwrap_or(&empty);
        if self.reader.origin() == Origin::Sidecar {
            self.reader.unknown_fields(fields, &FIELDS);
        }
        let inputs = self.inputs(fields);
        let env = self.env(fields);
        let (commands, files) = self.preconditions(fields);
        let (output_files, output_artifacts) = self.outputs(fields, &inputs);
        Manifest {
            version,
            skill_version: self.skill_version(fields),
            inputs,
            env,
            commands,
            files,
            output_files,
            output_artifacts,
            execution: self.execution(fields),
            sensitive: self.reader.truth(fields, "sensitive"),
        }
    }

    fn skill_version(&mut self, fields: &Map<String, Value>) -> Option<String> {
        match fields.get("version")? {
            Value::Number(number) => {
                let message = format!(
                    "YAML reads this as the number {number}, so a zero at its end is lost: write it in quotes"
                );
                self.reader.within_key("version", |reader| {
                    reader.add(RuleId::ManifestValue, Severity::Warning, message);
                });
                Some(number.to_string())
            }
            _ => self.reader.text(fields, "version").map(str::to_owned),
        }
    }

    fn inputs(&mut self, fields: &Map<String, Value>) -> Vec<Input> {
        let mut inputs: Vec<Input> = Vec::new();
        let mut names = BTreeSet::new();
        self.by_need(fields, "inputs", |reader, item, need| {
            reader.unknown_fields(item, &["name", DESCRIPTION, "schema", "sensitive"]);
            let name = reader.required_text(item, "name")?;
            // It stands in prompts and in marks of what was redacted, so it must not look like anything else.
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            if !check_name(
                reader,
                "name",
                name,
                is_name,
                "an input's name is letters, digits, `_`, `-` and `.`",
            ) {
                return None;
            }
            // What scripts know it by must be one input's alone.
            if !names.insert(input_variable(name)) {
                let message =
                    format!("another input is called `{name}` too, or goes to scripts by the same variable");
                reader.within_key("name", |reader| reader.error(RuleId::ManifestName, message));
                return None;
            }
            let schema = read_schema(reader, item);
            let description = reader.text(item, DESCRIPTION).map(str::to_owned);
            let sensitive = reader.truth(item, "sensitive");
            inputs.push(Input { name: name.to_owned(), description, need, schema, sensitive });
            Some(())
        });
        inputs
    }

    fn env(&mut self, fields: &Map<String, Value>) -> Vec<EnvVariable> {
        let mut variables: Vec<EnvVariable> = Vec::new();
        self.by_need(fields, "env", |reader, item, need| {
            reader.unknown_fields(item, &["name", DESCRIPTION, "sensitive"]);
            let name = reader.required_text(item, "name")?;
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let rule = "a variable's name is letters, digits and `_`, and does not begin with a digit";
            let is_name = |c| is_name(c) && !name.starts_with(|c: char| c.is_ascii_digit());
            if !check_name(reader, "name", name, is_name, rule) {
                return None;
            }
            if variables.iter().any(|other| other.name == name) {
                let message = format!("the variable `{name}` is there twice");
                reader.within_key("name", |reader| reader.error(RuleId::ManifestName, message));
                return None;
            }
            let description = reader.text(item, DESCRIPTION).map(str::to_owned);
            let sensitive = reader.truth(item, "sensitive");
            variables.push(EnvVariable { name: name.to_owned(), description, need, sensitive });
            Some(())
        });
        variables
    }

    fn preconditions(&mut self, fields: &Map<String, Value>) -> (Vec<CommandNeed>, Vec<FileNeed>) {
        let (mut commands, mut files) = (Vec::new(), Vec::new());
        self.section(fields, "preconditions", &["commands", "files"], |reader, section| {
            items(reader, section, "commands", |reader, item| {
                reader.unknown_fields(item, &["cmd", "min_version", "max_version", DESCRIPTION]);
                let command = reader.required_text(item, "cmd")?;
                let is_name = |c: char| !c.is_whitespace() && !c.is_control() && c != '/';
                let is_name = |c| is_name(c) && !command.starts_with('-');
                let rule = "a command's name has no space and no `/`, and does not begin with `-`";
                if !check_name(reader, "cmd", command, is_name, rule) {
                    return None;
                }
                let min_version = version(reader, item, "min_version");
                let max_version = version(reader, item, "max_version");
                if let (Some(min), Some(max)) = (&min_version, &max_version)
                    && min > max
                {
                    let message = format!("no version is at least {min} and at most {max}");
                    reader.error(RuleId::ManifestValue, message);
                }
                commands.push(CommandNeed { command: command.to_owned(), min_version, max_version });
                Some(())
            });
            items(reader, section, "files", |reader, item| {
                reader.unknown_fields(item, &["path", "base", DESCRIPTION]);
                let path = reader.required_text(item, "path")?;
                if let Err(problem) = path::check(path) {
                    let message = format!("`{path}` is refused: {problem}");
                    reader.within_key("path", |reader| reader.error(RuleId::ManifestPath, message));
                    return None;
                }
                let base = base(reader, item, Base::SkillRoot);
                let description = reader.text(item, DESCRIPTION).map(str::to_owned);
                files.push(FileNeed { path: path.to_owned(), base, description });
                Some(())
            });
        });
        (commands, files)
    }

    fn outputs(
        &mut self,
        fields: &Map<String, Value>,
        inputs: &[Input],
    ) -> (Vec<OutputFile>, Vec<OutputArtifact>) {
        let (mut files, mut artifacts) = (Vec::new(), Vec::new());
        self.section(fields, "outputs", &["files", "artifacts"], |reader, section| {
            items(reader, section, "files", |reader, item| {
                reader.unknown_fields(item, &["pattern", "base", DESCRIPTION]);
                let text = reader.required_text(item, "pattern")?;
                let unknown = |pattern: &OutputPattern| {
                    let mut names = pattern.variables();
                    let unknown = names.find(|name| !inputs.iter().any(|input| input.name == *name));
                    unknown.map(|name| OutputPatternError::UnknownVariable { name: name.to_owned() })
                };
                let read = OutputPattern::new(text);
                let pattern = match read.and_then(|pattern| unknown(&pattern).map_or(Ok(pattern), Err)) {
                    Ok(pattern) => pattern,
                    Err(error) => {
                        let rule = match error {
                            OutputPatternError::Path(_) => RuleId::ManifestPath,
                            _ => RuleId::ManifestValue,
                        };
                        let message = format!("`{text}` is refused: {error}");
                        reader.within_key("pattern", |reader| reader.error(rule, message));
                        return None;
                    }
                };
                let base = base(reader, item, Base::RepoRoot);
                let description = reader.text(item, DESCRIPTION).map(str::to_owned);
                files.push(OutputFile { pattern, base, description });
                Some(())
            });
            reader.within_key("artifacts", |reader| {
                let none = Value::Null;
                let list = reader.list(section.get("artifacts").unwrap_or(&none));
                for (index, item) in list.iter().enumerate().take(MAX_ITEMS) {
                    artifacts.extend(reader.within_item(index, |reader| artifact(reader, item)));
                }
            });
        });
        (files, artifacts)
    }

    fn execution(&mut self, fields: &Map<String, Value>) -> Execution {
        let mut execution = Execution::default();
        let known = ["idempotent", "destructive", "network", "interactive", "timeout"];
        self.section(fields, "execution", &known, |reader, section| {
            execution = Execution {
                idempotent: reader.truth(section, "idempotent"),
                destructive: match (reader.truth(section, "destructive"), section.get("destructive")) {
                    (true, _) => Destructive::Yes,
                    (false, Some(Value::Bool(false))) => Destructive::No,
                    (false, _) => Destructive::Unsaid,
                },
                network: reader.truth(section, "network"),
                interactive: reader.truth(section, "interactive"),
                timeout: timeout(reader, section),
            };
        });
        execution
    }

    /// Reads a mapping among the fields.
    fn section(
        &mut self,
        fields: &Map<String, Value>,
        key: &str,
        known: &[&str],
        read: impl FnOnce(&mut Reader<'a>, &Map<String, Value>),
    ) {
        let Some(value) = fields.get(key) else { return };
        self.reader.within_key(key, |reader| {
            if let Some(section) = reader.mapping(value) {
                reader.unknown_fields(section, known);
                read(reader, section);
            }
        });
    }

    /// Reads the lists `required` and `optional` of a mapping among the fields.
    fn by_need(
        &mut self,
        fields: &Map<String, Value>,
        key: &str,
        mut read: impl FnMut(&mut Reader<'a>, &Map<String, Value>, Need) -> Option<()>,
    ) {
        self.section(fields, key, &["required", "optional"], |reader, section| {
            for (list, need) in NEEDS {
                items(reader, section, list, |reader, item| read(reader, item, need));
            }
        });
    }
}

/// Reads the mappings of a list. What is not to be used is told by whoever reads it.
fn items<'a>(
    reader: &mut Reader<'a>,
    section: &Map<String, Value>,
    key: &str,
    mut read: impl FnMut(&mut Reader<'a>, &Map<String, Value>) -> Option<()>,
) {
    let Some(value) = section.get(key) else { return };
    reader.within_key(key, |reader| {
        let list = reader.list(value);
        if list.len() > MAX_ITEMS {
            reader.error(RuleId::ManifestValue, format!("a list has at most {MAX_ITEMS} items"));
        }
        for (index, item) in list.iter().enumerate().take(MAX_ITEMS) {
            reader.within_item(index, |reader| match item {
                Value::Object(fields) => drop(read(reader, fields)),
                other => reader.expected("a mapping", other),
            });
        }
    });
}

fn check_name(
    reader: &mut Reader<'_>,
    key: &str,
    name: &str,
    is_name: impl Fn(char) -> bool,
    rule: &str,
) -> bool {
    let is_short = name.chars().nth(MAX_NAME_CHARS).is_none();
    let is_good = !name.is_empty() && is_short && name.chars().all(is_name);
    if !is_good {
        let message = format!("{rule}; it has 1 to {MAX_NAME_CHARS} characters");
        reader.within_key(key, |reader| reader.error(RuleId::ManifestName, message));
    }
    is_good
}

fn read_schema(reader: &mut Reader<'_>, item: &Map<String, Value>) -> Schema {
    let Some(value) = item.get("schema").filter(|value| !value.is_null()) else { return Schema::default() };
    let mut problems = Vec::new();
    let schema = Schema::read(value, &mut problems);
    for problem in problems {
        let severity = if problem.is_warning { Severity::Warning } else { Severity::Error };
        reader.within_key("schema", |reader| {
            reader.within_keys(&problem.path, |reader| {
                reader.add(RuleId::ManifestSchema, severity, problem.message.clone());
            });
        });
    }
    schema
}

fn base(reader: &mut Reader<'_>, item: &Map<String, Value>, default: Base) -> Base {
    let Some(name) = reader.text(item, "base") else { return default };
    Base::ALL.into_iter().find(|base| base.as_str() == name).unwrap_or_else(|| {
        let message = format!("`{name}` is no base: write `skill_root`, `repo_root` or `cwd`");
        reader.within_key("base", |reader| reader.error(RuleId::ManifestValue, message));
        default
    })
}

fn version(reader: &mut Reader<'_>, item: &Map<String, Value>, key: &str) -> Option<Version> {
    let text = match item.get(key)? {
        Value::Number(number) if number.is_f64() => {
            let message = format!(
                "YAML reads this as the number {number}, and 2.40 would be 2.4: write the version in quotes"
            );
            reader.within_key(key, |reader| reader.error(RuleId::ManifestValue, message));
            return None;
        }
        Value::Number(number) => number.to_string(),
        _ => reader.text(item, key)?.to_owned(),
    };
    match text.parse() {
        Ok(version) => Some(version),
        Err(error) => {
            reader.within_key(key, |reader| reader.error(RuleId::ManifestValue, format!("{error}")));
            None
        }
    }
}

fn artifact(reader: &mut Reader<'_>, item: &Value) -> Option<OutputArtifact> {
    match item {
        Value::String(name) => Some(OutputArtifact { name: name.clone(), description: None }),
        Value::Object(fields) => {
            let name = reader.required_text(fields, "name")?.to_owned();
            let description = reader.text(fields, DESCRIPTION).map(str::to_owned);
            Some(OutputArtifact { name, description })
        }
        other => {
            reader.expected("a name, or a mapping with `name` and `description`", other);
            None
        }
    }
}

fn timeout(reader: &mut Reader<'_>, section: &Map<String, Value>) -> Option<Duration> {
    let value = section.get("timeout").filter(|value| !value.is_null())?;
    let seconds = value.as_f64().filter(|seconds| *seconds > 0.0 && *seconds <= MAX_TIMEOUT);
    if seconds.is_none() {
        let message = "expected a number of seconds, more than zero and at most those of a week";
        reader.within_key("timeout", |reader| reader.error(RuleId::ManifestValue, message));
    }
    seconds.map(Duration::from_secs_f64)
}

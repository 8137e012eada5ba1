//! Reads the fields of a manifest.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use super::origin::{FIELDS, ManifestOrigin, VERSION};
use super::reader::ValueReader;
use crate::diagnostic::{RuleId, Severity};
use crate::fields::version::Version;
use crate::manifest::definition::{Destructive, Execution, Manifest, ManifestVersion};
use crate::manifest::input::{EnvVariable, Input, Requirement, input_variable};
use crate::manifest::output::{OutputArtifact, OutputFile, OutputPattern, OutputPatternError};
use crate::manifest::path::{self, PathBase};
use crate::manifest::precondition::{RequiredCommand, RequiredFile};
use crate::schema::Schema;

/// The maximum number of inputs, variables, commands, files or outputs in a list.
const MAX_ITEMS: usize = 256;
const MAX_NAME_CHARS: usize = 128;
/// The maximum run time that a skill may declare, in seconds.
const MAX_TIMEOUT: f64 = 7.0 * 24.0 * 3600.0;
const NEEDS: [(&str, Requirement); 2] =
    [("required", Requirement::Required), ("optional", Requirement::Optional)];
/// The key of descriptions. They are only shown to people, so they have no limit other than the frontmatter's.
const DESCRIPTION: &str = "description";

/// The declared version of a manifest.
pub(super) enum DeclaredVersion {
    Legacy,
    Unreadable,
    Version(ManifestVersion),
}

/// Reads the fields and collects findings.
pub(super) struct Fields<'r, 'a, 'v> {
    reader: &'r mut ValueReader<'a>,
    fields: Option<&'v Map<String, Value>>,
}

impl<'r, 'a, 'v> Fields<'r, 'a, 'v> {
    pub(super) fn new(reader: &'r mut ValueReader<'a>, value: &'v Value) -> Self {
        let fields = reader.mapping(value);
        Self { reader, fields }
    }

    pub(super) const fn reader(&mut self) -> &mut ValueReader<'a> {
        self.reader
    }

    pub(super) fn manifest_version(&mut self) -> DeclaredVersion {
        let text = match self.fields.and_then(|fields| fields.get(VERSION)) {
            // A value that is no mapping was reported already.
            None if self.reader.has_errors() => return DeclaredVersion::Unreadable,
            None | Some(Value::Null) => return DeclaredVersion::Legacy,
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => {
                self.reader.in_key(VERSION, |reader| reader.expected("text such as \"1.0\"", other));
                return DeclaredVersion::Unreadable;
            }
        };
        match text.trim().parse::<ManifestVersion>() {
            Ok(version) => DeclaredVersion::Version(version),
            Err(error) => {
                self.reader.in_key(VERSION, |reader| {
                    reader.error(RuleId::ManifestValue, error.to_string());
                });
                DeclaredVersion::Unreadable
            }
        }
    }

    /// Builds the manifest. It is incomplete when there are errors.
    pub(super) fn manifest(mut self, version: ManifestVersion) -> Manifest {
        let empty = Map::new();
        let fields = self.fields.unwrap_or(&empty);
        if self.reader.origin() == ManifestOrigin::Sidecar {
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
            sensitive: self.reader.boolean(fields, "sensitive"),
        }
    }

    fn skill_version(&mut self, fields: &Map<String, Value>) -> Option<String> {
        match fields.get("version")? {
            Value::Number(number) => {
                let message = format!(
                    "YAML reads this as the number {number}, so a zero at its end is lost: write it in quotes"
                );
                self.reader.in_key("version", |reader| {
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
        self.by_requirement(fields, "inputs", |reader, item, need| {
            reader.unknown_fields(item, &["name", DESCRIPTION, "schema", "sensitive"]);
            let name = reader.required_text(item, "name")?;
            // The name appears in prompts and in redaction marks, so it must be unambiguous.
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
            // The variable of an input must be unique.
            if !names.insert(input_variable(name)) {
                let message =
                    format!("another input is called `{name}` too, or goes to scripts by the same variable");
                reader.in_key("name", |reader| reader.error(RuleId::ManifestName, message));
                return None;
            }
            let schema = read_schema(reader, item);
            let description = reader.text(item, DESCRIPTION).map(str::to_owned);
            let sensitive = reader.boolean(item, "sensitive");
            inputs.push(Input { name: name.to_owned(), description, requirement: need, schema, sensitive });
            Some(())
        });
        inputs
    }

    fn env(&mut self, fields: &Map<String, Value>) -> Vec<EnvVariable> {
        let mut variables: Vec<EnvVariable> = Vec::new();
        self.by_requirement(fields, "env", |reader, item, need| {
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
                reader.in_key("name", |reader| reader.error(RuleId::ManifestName, message));
                return None;
            }
            let description = reader.text(item, DESCRIPTION).map(str::to_owned);
            let sensitive = reader.boolean(item, "sensitive");
            variables.push(EnvVariable { name: name.to_owned(), description, requirement: need, sensitive });
            Some(())
        });
        variables
    }

    fn preconditions(&mut self, fields: &Map<String, Value>) -> (Vec<RequiredCommand>, Vec<RequiredFile>) {
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
                commands.push(RequiredCommand { command: command.to_owned(), min_version, max_version });
                Some(())
            });
            items(reader, section, "files", |reader, item| {
                reader.unknown_fields(item, &["path", "base", DESCRIPTION]);
                let path = reader.required_text(item, "path")?;
                if let Err(problem) = path::check(path) {
                    let message = format!("`{path}` is refused: {problem}");
                    reader.in_key("path", |reader| reader.error(RuleId::ManifestPath, message));
                    return None;
                }
                let base = base(reader, item, PathBase::SkillRoot);
                let description = reader.text(item, DESCRIPTION).map(str::to_owned);
                files.push(RequiredFile { path: path.to_owned(), base, description });
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
                        reader.in_key("pattern", |reader| reader.error(rule, message));
                        return None;
                    }
                };
                let base = base(reader, item, PathBase::RepoRoot);
                let description = reader.text(item, DESCRIPTION).map(str::to_owned);
                files.push(OutputFile { pattern, base, description });
                Some(())
            });
            reader.in_key("artifacts", |reader| {
                let none = Value::Null;
                let list = reader.list(section.get("artifacts").unwrap_or(&none));
                for (index, item) in list.iter().enumerate().take(MAX_ITEMS) {
                    artifacts.extend(reader.in_item(index, |reader| artifact(reader, item)));
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
                idempotent: reader.boolean(section, "idempotent"),
                destructive: match (reader.boolean(section, "destructive"), section.get("destructive")) {
                    (true, _) => Destructive::Yes,
                    (false, Some(Value::Bool(false))) => Destructive::No,
                    (false, _) => Destructive::Unspecified,
                },
                network: reader.boolean(section, "network"),
                interactive: reader.boolean(section, "interactive"),
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
        read: impl FnOnce(&mut ValueReader<'a>, &Map<String, Value>),
    ) {
        let Some(value) = fields.get(key) else { return };
        self.reader.in_key(key, |reader| {
            if let Some(section) = reader.mapping(value) {
                reader.unknown_fields(section, known);
                read(reader, section);
            }
        });
    }

    /// Reads the lists `required` and `optional` of a mapping.
    fn by_requirement(
        &mut self,
        fields: &Map<String, Value>,
        key: &str,
        mut read: impl FnMut(&mut ValueReader<'a>, &Map<String, Value>, Requirement) -> Option<()>,
    ) {
        self.section(fields, key, &["required", "optional"], |reader, section| {
            for (list, need) in NEEDS {
                items(reader, section, list, |reader, item| read(reader, item, need));
            }
        });
    }
}

/// Reads the mappings of a list. The caller reports invalid ones.
fn items<'a>(
    reader: &mut ValueReader<'a>,
    section: &Map<String, Value>,
    key: &str,
    mut read: impl FnMut(&mut ValueReader<'a>, &Map<String, Value>) -> Option<()>,
) {
    let Some(value) = section.get(key) else { return };
    reader.in_key(key, |reader| {
        let list = reader.list(value);
        if list.len() > MAX_ITEMS {
            reader.error(RuleId::ManifestValue, format!("a list has at most {MAX_ITEMS} items"));
        }
        for (index, item) in list.iter().enumerate().take(MAX_ITEMS) {
            reader.in_item(index, |reader| match item {
                Value::Object(fields) => drop(read(reader, fields)),
                other => reader.expected("a mapping", other),
            });
        }
    });
}

fn check_name(
    reader: &mut ValueReader<'_>,
    key: &str,
    name: &str,
    is_name: impl Fn(char) -> bool,
    rule: &str,
) -> bool {
    let is_short = name.chars().nth(MAX_NAME_CHARS).is_none();
    let is_valid = !name.is_empty() && is_short && name.chars().all(is_name);
    if !is_valid {
        let message = format!("{rule}; it has 1 to {MAX_NAME_CHARS} characters");
        reader.in_key(key, |reader| reader.error(RuleId::ManifestName, message));
    }
    is_valid
}

fn read_schema(reader: &mut ValueReader<'_>, item: &Map<String, Value>) -> Schema {
    let Some(value) = item.get("schema").filter(|value| !value.is_null()) else { return Schema::default() };
    let mut problems = Vec::new();
    let schema = Schema::read(value, &mut problems);
    for problem in problems {
        let severity = if problem.is_warning { Severity::Warning } else { Severity::Error };
        reader.in_key("schema", |reader| {
            reader.in_keys(&problem.path, |reader| {
                reader.add(RuleId::ManifestSchema, severity, problem.message.clone());
            });
        });
    }
    schema
}

fn base(reader: &mut ValueReader<'_>, item: &Map<String, Value>, default: PathBase) -> PathBase {
    let Some(name) = reader.text(item, "base") else { return default };
    PathBase::ALL.into_iter().find(|base| base.as_str() == name).unwrap_or_else(|| {
        let message = format!("`{name}` is not a base: write `skill_root`, `repo_root` or `cwd`");
        reader.in_key("base", |reader| reader.error(RuleId::ManifestValue, message));
        default
    })
}

fn version(reader: &mut ValueReader<'_>, item: &Map<String, Value>, key: &str) -> Option<Version> {
    let text = match item.get(key)? {
        Value::Number(number) if number.is_f64() => {
            let message = format!(
                "YAML reads this as the number {number}, and 2.40 would be 2.4: write the version in quotes"
            );
            reader.in_key(key, |reader| reader.error(RuleId::ManifestValue, message));
            return None;
        }
        Value::Number(number) => number.to_string(),
        _ => reader.text(item, key)?.to_owned(),
    };
    match text.parse() {
        Ok(version) => Some(version),
        Err(error) => {
            reader.in_key(key, |reader| reader.error(RuleId::ManifestValue, format!("{error}")));
            None
        }
    }
}

fn artifact(reader: &mut ValueReader<'_>, item: &Value) -> Option<OutputArtifact> {
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

fn timeout(reader: &mut ValueReader<'_>, section: &Map<String, Value>) -> Option<Duration> {
    let value = section.get("timeout").filter(|value| !value.is_null())?;
    let seconds = value.as_f64().filter(|seconds| *seconds > 0.0 && *seconds <= MAX_TIMEOUT);
    if seconds.is_none() {
        let message = "expected a number of seconds, more than zero and at most those of a week";
        reader.in_key("timeout", |reader| reader.error(RuleId::ManifestValue, message));
    }
    seconds.map(Duration::from_secs_f64)
}

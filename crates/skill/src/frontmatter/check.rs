//! Checks the rules of the fields, with the messages and the order of the reference validator.

use conjure_base::text::{classify_chars, truncate};

use super::document::{Frontmatter, Mode};
use super::findings::Findings;
use crate::allowed_tools::AllowedTools;
use crate::diagnostic::{RuleId, Severity};
use crate::fields::metadata::Metadata;
use crate::fields::name::{self, NameProblem, SkillName};
use crate::manifest;
use crate::yaml::{Mark, Node, Value};

/// The maximum length of a description in code points.
pub const MAX_DESCRIPTION_CHARS: usize = 1024;
const MAX_COMPATIBILITY_CHARS: usize = 500;

/// The maximum number of unknown fields to name, and of characters of each: a hostile file has thousands.
const MAX_NAMED_FIELDS: usize = 10;
const MAX_FIELD_NAME_CHARS: usize = 64;

/// The fields of the format, sorted as the reference lists them.
const FIELDS: [&str; 6] = ["allowed-tools", "compatibility", "description", "license", "metadata", "name"];

/// The position of a missing field.
const START: Mark = Mark { line: 1, column: 1 };

/// The expected name of a skill: that of its directory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ExpectedName<'a> {
    /// The text comes from no file.
    Unknown,
    /// The last segment of the directory's path.
    Named(&'a str),
}

/// The message about the characters of a text that deceive its reader. `None` if there are none.
pub(crate) fn deceptive_chars(place: &str, text: &str) -> Option<String> {
    let (found, _) = classify_chars(text).find(|(_, is_deceptive)| *is_deceptive)?;
    Some(format!(
        "{place} has invisible characters or characters that change the text direction, such as U+{:04X}; models are told it \
         without them",
        u32::from(found)
    ))
}

/// Checks a document and returns its fields. Violations are added to `findings`. `None` when a required field is
/// missing.
pub(super) fn check(
    root: Node,
    mode: Mode,
    dir: ExpectedName<'_>,
    findings: &mut Findings<'_>,
) -> Option<Frontmatter> {
    let mut rules = FieldRules { mode, findings };
    let Value::Mapping(entries) = root.value else {
        rules.error(RuleId::FrontmatterNotMapping, "SKILL.md frontmatter must be a YAML mapping", root.mark);
        return None;
    };
    let mut fields = Fields::default();
    let mut unknown = Vec::new();
    let has_manifest = entries.iter().any(|(key, ..)| manifest::declares_manifest(key));
    for (key, mark, value) in entries {
        // A strict reader reports fields that are not allowed here.
        if has_manifest && mode == Mode::Lenient && manifest::is_manifest_field(&key) {
            continue;
        }
        match fields.field_mut(&key) {
            Some(slot) => *slot = Some(value),
            None => unknown.push((key, mark)),
        }
    }
    rules.unknown_fields(unknown);
    let name = rules.name(fields.name, dir);
    let description = rules.description(fields.description);
    let compatibility = rules.compatibility(fields.compatibility);
    let license = rules.text("license", fields.license);
    let allowed_tools = rules.allowed_tools(fields.allowed_tools);
    let metadata = rules.metadata(fields.metadata);
    Some(Frontmatter {
        name: name?,
        description: description?,
        license,
        compatibility,
        allowed_tools,
        metadata,
        manifest: None,
    })
}

/// The name of an unknown field, for messages.
fn shortened(name: &str) -> String {
    truncate(name, MAX_FIELD_NAME_CHARS + 1).into_owned()
}

/// The fields as they were found.
#[derive(Default)]
struct Fields {
    name: Option<Node>,
    description: Option<Node>,
    license: Option<Node>,
    compatibility: Option<Node>,
    allowed_tools: Option<Node>,
    metadata: Option<Node>,
}

impl Fields {
    fn field_mut(&mut self, key: &str) -> Option<&mut Option<Node>> {
        match key {
            "name" => Some(&mut self.name),
            "description" => Some(&mut self.description),
            "license" => Some(&mut self.license),
            "compatibility" => Some(&mut self.compatibility),
            "allowed-tools" => Some(&mut self.allowed_tools),
            "metadata" => Some(&mut self.metadata),
            _ => None,
        }
    }
}

/// Checks the rules of the mode.
struct FieldRules<'a, 'f> {
    mode: Mode,
    findings: &'a mut Findings<'f>,
}

impl FieldRules<'_, '_> {
    fn unknown_fields(&mut self, mut unknown: Vec<(String, Mark)>) {
        let Some((_, mark)) = unknown.first() else { return };
        let mark = *mark;
        unknown.sort();
        let names: Vec<_> = unknown.iter().map(|(key, _)| key.as_str()).collect();
        let known: Vec<_> = FIELDS.iter().map(|field| format!("'{field}'")).collect();
        let (names, known) = (names.join(", "), known.join(", "));
        match self.mode {
            Mode::Strict => {
                let message =
                    format!("Unexpected fields in frontmatter: {names}. Only [{known}] are allowed.");
                self.error(RuleId::UnknownField, message, mark);
            }
            Mode::Lenient => {
                let more = unknown.len().saturating_sub(MAX_NAMED_FIELDS);
                let names: Vec<_> =
                    unknown.iter().take(MAX_NAMED_FIELDS).map(|(key, _)| shortened(key)).collect();
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let message =
                    format!("ignored fields that the format does not know: {}{more}", names.join(", "));
                self.add(RuleId::UnknownField, Severity::Info, message, mark);
            }
        }
    }

    fn name(&mut self, node: Option<Node>, dir: ExpectedName<'_>) -> Option<SkillName> {
        let Some(node) = node else {
            let message = "Missing required field in frontmatter: name";
            return self.use_directory_name(RuleId::NameMissing, message, START, dir);
        };
        let mark = node.mark;
        let text = match node.as_text() {
            Some(text) if !name::strip(text).is_empty() => text,
            _ => {
                return self.use_directory_name(
                    RuleId::NameEmpty,
                    &NameProblem::Empty.to_string(),
                    mark,
                    dir,
                );
            }
        };
        let read = match self.mode {
            Mode::Strict => SkillName::new(text).map(|name| (name, Vec::new())),
            Mode::Lenient => SkillName::lenient(text),
        };
        let (name, problems) = match read {
            Ok((name, problems)) => (Some(name), problems),
            Err(error) => (None, error.problems().to_vec()),
        };
        for problem in &problems {
            let severity = if name.is_some() { self.severity() } else { Severity::Error };
            self.add(problem.rule(), severity, problem.to_string(), mark);
        }
        if let ExpectedName::Named(dir) = dir {
            let normal = name::normalised(text);
            if name::nfkc(dir) != normal {
                let message = format!("Directory name '{dir}' must match skill name '{normal}'");
                self.add(RuleId::NameDirectoryMismatch, self.severity(), message, mark);
            }
        }
        name
    }

    /// A lenient reader uses the directory's name if the file has none.
    fn use_directory_name(
        &mut self,
        rule: RuleId,
        message: &str,
        mark: Mark,
        dir: ExpectedName<'_>,
    ) -> Option<SkillName> {
        let name = match (self.mode, dir) {
            (Mode::Lenient, ExpectedName::Named(dir)) => SkillName::lenient(dir).ok(),
            _ => None,
        };
        match &name {
            Some((name, _)) => {
                let message = format!("{message}; took the directory's, `{name}`");
                self.add(rule, Severity::Warning, message, mark);
            }
            None => self.error(rule, message, mark),
        }
        name.map(|(name, _)| name)
    }

    fn description(&mut self, node: Option<Node>) -> Option<String> {
        let Some(node) = node else {
            self.error(
                RuleId::DescriptionMissing,
                "Missing required field in frontmatter: description",
                START,
            );
            return None;
        };
        let stripped = node.as_text().map(name::strip).filter(|text| !text.is_empty());
        let Some(stripped) = stripped else {
            self.error(RuleId::DescriptionEmpty, "Field 'description' must be a non-empty string", node.mark);
            return None;
        };
        // The length includes the surrounding space, as in the reference.
        let chars = node.as_text().map_or(0, |text| text.chars().count());
        if chars > MAX_DESCRIPTION_CHARS {
            let message =
                format!("Description exceeds {MAX_DESCRIPTION_CHARS} character limit ({chars} chars)");
            self.add(RuleId::DescriptionTooLong, self.severity(), message, node.mark);
        }
        if let Some(message) = deceptive_chars("the description", stripped) {
            self.add(RuleId::DescriptionDeceptive, Severity::Warning, message, node.mark);
        }
        Some(stripped.to_owned())
    }

    fn compatibility(&mut self, node: Option<Node>) -> Option<String> {
        let node = node?;
        let Some(text) = node.as_text() else {
            self.add(
                RuleId::CompatibilityNotText,
                self.severity(),
                "Field 'compatibility' must be a string",
                node.mark,
            );
            return Some(plain(&node));
        };
        let chars = text.chars().count();
        if chars > MAX_COMPATIBILITY_CHARS {
            let message =
                format!("Compatibility exceeds {MAX_COMPATIBILITY_CHARS} character limit ({chars} chars)");
            self.add(RuleId::CompatibilityTooLong, self.severity(), message, node.mark);
        }
        Some(text.to_owned())
    }

    /// A field that must be text according to the format, and that the reference does not check. Another value is
    /// a warning in both modes, and its texts are joined by spaces.
    fn text(&mut self, field: &str, node: Option<Node>) -> Option<String> {
        let node = node?;
        if node.as_text().is_none() {
            let message = format!("Field '{field}' should be a string; its parts were joined by spaces");
            self.add(RuleId::FieldNotText, Severity::Warning, message, node.mark);
        }
        Some(plain(&node))
    }

    /// The text is kept as written. Invalid rules are reported to the author.
    fn allowed_tools(&mut self, node: Option<Node>) -> Option<String> {
        let mark = node.as_ref().map_or(START, |node| node.mark);
        let text = self.text("allowed-tools", node)?;
        for problem in AllowedTools::parse(&text).1 {
            self.add(problem.rule(), problem.severity(), problem.message(), mark);
        }
        Some(text)
    }

    fn metadata(&mut self, node: Option<Node>) -> Metadata {
        let Some(node) = node else { return Metadata::default() };
        match node.value {
            Value::Mapping(entries) => entries
                .into_iter()
                .map(|(key, _, value)| {
                    if value.as_text().is_none() {
                        let message = format!(
                            "Field 'metadata' must be a map of strings to strings: '{key}' is not a string"
                        );
                        self.add(RuleId::MetadataShape, self.severity(), message, value.mark);
                    }
                    (key, plain(&value))
                })
                .collect(),
            Value::Scalar(text) if text.is_empty() => Metadata::default(),
            Value::Scalar(_) | Value::Sequence(_) => {
                let message = "Field 'metadata' must be a map of strings to strings";
                self.add(RuleId::MetadataShape, self.severity(), message, node.mark);
                Metadata::default()
            }
        }
    }

    /// A violation is an error in strict mode, and a warning in lenient mode.
    const fn severity(&self) -> Severity {
        match self.mode {
            Mode::Strict => Severity::Error,
            Mode::Lenient => Severity::Warning,
        }
    }

    fn error(&mut self, rule: RuleId, message: impl Into<String>, mark: Mark) {
        self.add(rule, Severity::Error, message, mark);
    }

    fn add(&mut self, rule: RuleId, severity: Severity, message: impl Into<String>, mark: Mark) {
        self.findings.add(rule, severity, message, mark);
    }
}

/// All texts of a node in one line: the items of a list, `key: value` of a mapping.
fn plain(node: &Node) -> String {
    match &node.value {
        Value::Scalar(text) => text.clone(),
        Value::Sequence(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        Value::Mapping(entries) => entries
            .iter()
            .map(|(key, _, value)| format!("{key}: {}", plain(value)))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

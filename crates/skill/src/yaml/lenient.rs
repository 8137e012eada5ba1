//! Reads all of YAML, and repairs what real files get wrong.

use serde_yaml::Value as Yaml;

use super::node::{Mark, Node, Syntax, Value};
use super::strict;

/// The position for values whose position is unknown.
const START: Mark = Mark { line: 1, column: 1 };

/// The maximum size to repair in bytes, and the maximum number of opening brackets. The library's run time is
/// superlinear for hostile input.
const MAX_BYTES: usize = 32 * 1024;
const MAX_FLOWS: usize = 512;

/// How a document was read that strict mode refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepairKind {
    /// It is YAML beyond the subset of the format.
    AllOfYaml,
    /// Values that are no valid YAML were taken as text.
    Quoted,
}

impl RepairKind {
    /// The description for messages.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::AllOfYaml => "read as YAML with all its features",
            Self::Quoted => "read values that are not valid YAML as plain text",
        }
    }
}

/// Whether values that are no valid YAML are taken as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepairMode {
    Yes,
    No,
}

/// Reads a document with the types of its values.
pub(crate) fn read_typed(text: &str, repairing: RepairMode) -> Result<Yaml, Syntax> {
    if !is_bounded(text) {
        let message =
            format!("larger than {MAX_BYTES} bytes, or with more than {MAX_FLOWS} opening brackets");
        return Err(Syntax { message, mark: START });
    }
    serde_yaml::from_str(text).or_else(|error| {
        let repaired = match repairing {
            RepairMode::Yes => serde_yaml::from_str(&quote(text)).ok(),
            RepairMode::No => None,
        };
        repaired.ok_or_else(|| {
            let mark = error
                .location()
                .map_or(START, |at| Mark { line: count(at.line()), column: count(at.column()) });
            Syntax { message: error.to_string(), mark }
        })
    })
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Whether the library reads it in reasonable time.
fn is_bounded(text: &str) -> bool {
    let flows = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    text.len() <= MAX_BYTES && flows <= MAX_FLOWS
}

/// Reads a document that strict mode refuses, if possible.
pub(crate) fn read(text: &str) -> Option<(Node, RepairKind)> {
    if !is_bounded(text) {
        return None;
    }
    let parse = |text: &str| serde_yaml::from_str::<Yaml>(text).ok().map(node);
    if let Some(root) = parse(text) {
        return Some((root, RepairKind::AllOfYaml));
    }
    let quoted = quote(text);
    // Try the strict reader first: it keeps numbers as they were written.
    let root = strict::read(&quoted).ok().or_else(|| parse(&quoted))?;
    Some((root, RepairKind::Quoted))
}

/// Quotes every value that is not valid by itself. Real files contain `description: Use when: x`. A value includes
/// the deeper indented lines below it. The number of lines does not change.
fn quote(text: &str) -> String {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut out = String::with_capacity(text.len() + 16);
    let mut next = 0;
    while let Some(line) = lines.get(next) {
        if next > 0 {
            out.push('\n');
        }
        next += 1;
        let Some((key, value)) = split(line) else {
            out.push_str(line);
            continue;
        };
        if value.is_empty() {
            // The keys of a nested mapping are handled one by one.
            out.push_str(line);
            continue;
        }
        let indent = line.len() - line.trim_start_matches(' ').len();
        let deeper = lines[next..]
            .iter()
            .take_while(|below| below.trim().is_empty() || below.len() - below.trim_start().len() > indent)
            .count();
        let below = &lines[next..next + deeper];
        next += deeper;
        let joined = below.iter().fold(value.to_owned(), |mut joined, below| {
            joined.push('\n');
            joined.push_str(below);
            joined
        });
        out.push_str(key);
        out.push(' ');
        if is_block_scalar(value) || is_readable(&joined) {
            out.push_str(&joined);
        } else {
            let parts: Vec<_> = joined.split('\n').map(str::trim).filter(|parts| !parts.is_empty()).collect();
            out.push('\'');
            out.push_str(&parts.join(" ").replace('\'', "''"));
            out.push('\'');
            out.extend(below.iter().map(|_| '\n'));
        }
    }
    out
}

/// Splits a line into its key, with colon and indentation, and its value.
fn split(line: &str) -> Option<(&str, &str)> {
    let colon = line.find(':')?;
    let (key, value) = (&line[..=colon], &line[colon + 1..]);
    let name = key[..colon].trim_start_matches(' ');
    let is_name =
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let separated = value.is_empty() || value.starts_with([' ', '\t']);
    (is_name && separated).then(|| (key, value.trim()))
}

fn is_block_scalar(value: &str) -> bool {
    value.starts_with(['|', '>'])
}

/// Whether a value, which may span lines, is valid YAML and not an unintended mapping.
fn is_readable(value: &str) -> bool {
    match serde_yaml::from_str::<Yaml>(value) {
        Ok(Yaml::Mapping(_)) => value.starts_with('{'),
        Ok(_) => !value.contains('\t') || value.starts_with(['"', '\'']),
        Err(_) => false,
    }
}

/// Converts the library's tree to ours.
fn node(yaml: Yaml) -> Node {
    let value = match yaml {
        Yaml::Sequence(items) => Value::Sequence(items.into_iter().map(node).collect()),
        Yaml::Mapping(entries) => Value::Mapping(
            entries.into_iter().map(|(key, value)| (scalar(&key), START, node(value))).collect(),
        ),
        Yaml::Tagged(tagged) => return node(tagged.value),
        other => Value::Scalar(scalar(&other)),
    };
    Node { value, mark: START }
}

/// A scalar as text.
fn scalar(yaml: &Yaml) -> String {
    match yaml {
        Yaml::Null => String::new(),
        Yaml::Bool(value) => value.to_string(),
        Yaml::Number(value) => value.to_string(),
        Yaml::String(text) => text.clone(),
        other => serde_yaml::to_string(other).map(|text| text.trim_end().to_owned()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, key: &str, expected: &str, repair: RepairKind) {
        let (root, done) = read(text).unwrap();
        let Value::Mapping(entries) = root.value else { panic!("{text:?} is no mapping") };
        let value =
            entries.iter().find(|(candidate, ..)| candidate == key).and_then(|(.., value)| value.as_text());
        assert_eq!((value, done), (Some(expected), repair), "{text:?}");
    }

    #[test]
    fn common_yaml_mistakes_are_repaired() {
        let quoted = RepairKind::Quoted;
        check("name: a\ndescription: Use when: x", "description", "Use when: x", quoted);
        check(
            "description: Use when: it's\n  so: far\nname: a",
            "description",
            "Use when: it's so: far",
            quoted,
        );
        check("description: [WIP] a thing\nname: a", "description", "[WIP] a thing", quoted);
        check("description: *bold* words", "description", "*bold* words", quoted);
        check("description: @mention", "description", "@mention", quoted);
        check("description: 'a' and 'b'", "description", "'a' and 'b'", quoted);
        check("description: tab\there: x", "description", "tab\there: x", quoted);
        check("description: a: b\nversion: 1.10", "version", "1.10", quoted);
    }

    #[test]
    fn further_yaml_features_are_parsed() {
        check("a: &x b\nc: *x", "c", "b", RepairKind::AllOfYaml);
        check("a: [b, c]\nd: !t e", "d", "e", RepairKind::AllOfYaml);
    }

    #[test]
    fn unrepairable_documents_are_refused() {
        for text in ["a: 'b\n- c", "a: b\na: c", "\0", "a: {b\n{"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in r#"([a-c]|[-:?'"|>#&*!{}\[\],\\ \n\t]){0,60}"#) {
            let _ = read(&text);
        }
    }
}

//! The outputs that the skills of a session declare (ADR-002, `outputs`), compared with the files that exist.
//!
//! The patterns of a manifest may contain inputs (`{{output_dir}}/{{session_date}}.org`). Nothing is enforced: a skill
//! may produce other files than it declares.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use conjure_skill::{Manifest, OutputFile, PathBase, Skill};
use serde_json::Value;

use crate::workspace::ProducedFiles;

/// An output that a skill declares, and the files of the workspace that match it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedOutput {
    /// The skill's name.
    pub skill: String,
    /// The pattern as the manifest writes it.
    pub pattern: String,
    /// The description, if the manifest has one.
    pub description: Option<String>,
    /// The files that match.
    pub found: OutputMatch,
}

/// The files that match a declared output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputMatch {
    /// These files, by their paths relative to the workspace, sorted.
    Files(Vec<PathBuf>),
    /// No file matches.
    Missing,
    /// Unknown, for this reason. The pattern depends on an input without a value, or leads out of the workspace, or the
    /// workspace is too large.
    Unknown(String),
}

/// Compares the outputs that these skills declare with these files of the workspace. The result has the order of the
/// skills and their manifests. `inputs` are the values that the session was opened with. For other inputs, the defaults
/// of the manifests are used.
pub(crate) fn expected_outputs<'s>(
    skills: impl IntoIterator<Item = &'s Skill>,
    inputs: &BTreeMap<String, Value>,
    workspace: &Path,
    files: &ProducedFiles,
) -> Vec<ExpectedOutput> {
    let below_root = below_repository(workspace);
    let mut expected = Vec::new();
    for skill in skills {
        let Some(manifest) = skill.manifest() else { continue };
        let values = with_defaults(manifest, inputs);
        expected.extend(manifest.output_files().iter().map(|output| ExpectedOutput {
            skill: skill.name().to_string(),
            pattern: output.pattern().to_string(),
            description: output.description().map(str::to_owned),
            found: find(output, &values, &below_root, files),
        }));
    }
    expected
}

fn find(
    output: &OutputFile,
    values: &BTreeMap<String, Value>,
    below_root: &Path,
    files: &ProducedFiles,
) -> OutputMatch {
    let prefix = match output.base() {
        PathBase::RepoRoot => below_root,
        PathBase::Cwd => Path::new(""),
        PathBase::SkillRoot => {
            return OutputMatch::Unknown(
                "they would be in the skill's directory, which nothing can write".to_owned(),
            );
        }
    };
    if let Err(error) = output.pattern().expand(values) {
        return OutputMatch::Unknown(error.to_string());
    }
    let is_match = |path: &Path| output.pattern().matches(values, &prefix.join(path)).unwrap_or(false);
    let found: Vec<PathBuf> =
        files.files.iter().filter(|file| is_match(&file.path)).map(|file| file.path.clone()).collect();
    match found.is_empty() {
        false => OutputMatch::Files(found),
        true if files.complete => OutputMatch::Missing,
        true => OutputMatch::Unknown("the workspace has too many files to check all of them".to_owned()),
    }
}

/// The path of the workspace within its Git repository. It is empty if there is no repository, or if the workspace is its
/// root.
fn below_repository(workspace: &Path) -> PathBuf {
    let root = workspace.ancestors().find(|dir| dir.join(".git").exists()).unwrap_or(workspace);
    workspace.strip_prefix(root).unwrap_or(Path::new("")).to_owned()
}

fn with_defaults(manifest: &Manifest, inputs: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let defaults = manifest.inputs().iter().filter_map(|input| {
        input.schema().default_value().map(|value| (input.name().to_owned(), value.clone()))
    });
    let mut values: BTreeMap<String, Value> = defaults.collect();
    values.extend(inputs.iter().map(|(name, value)| (name.clone(), value.clone())));
    values
}

#[cfg(test)]
mod tests {
    use conjure_skill::Mode;
    use serde_json::json;

    use super::*;
    use crate::workspace::ProducedFile;

    fn skill(outputs: &str) -> (tempfile::TempDir, Skill) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("worklog");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("SKILL.md"), "---\nname: worklog\ndescription: Logs.\n---\n").unwrap();
        let manifest = format!(
            "manifest_version: \"1.0\"\ninputs:\n  required:\n    - name: day\n  optional:\n    - name: topic\n      schema:\n        \
             type: string\n        default: \"session\"\noutputs:\n  files:\n{outputs}"
        );
        std::fs::write(root.join("skill.manifest.yaml"), manifest).unwrap();
        let skill = Skill::load(&root, Mode::Strict).unwrap();
        (dir, skill)
    }

    fn files(paths: &[&str]) -> ProducedFiles {
        let file = |path: &&str| ProducedFile { path: path.into(), size: 1, existed: false };
        ProducedFiles { files: paths.iter().map(file).collect(), complete: true }
    }

    fn check(outputs: &str, inputs: Value, there: &[&str], expected: &OutputMatch) {
        let (dir, skill) = skill(outputs);
        let inputs = serde_json::from_value(inputs).unwrap();
        let found = expected_outputs([&skill], &inputs, dir.path(), &files(there));
        assert_eq!(found.len(), 1);
        assert_eq!(&found[0].found, expected, "{outputs}");
    }

    #[test]
    fn files_are_found_by_inputs_defaults_and_wildcards() {
        let there = ["docs/1-session.org", "docs/2-other.org", "x"];
        let dated = "    - pattern: \"docs/{{day}}-{{topic}}.org\"\n";
        let found = |path: &str| OutputMatch::Files(vec![path.into()]);
        check(dated, json!({"day": "1"}), &there, &found("docs/1-session.org"));
        check(dated, json!({"day": "2", "topic": "other"}), &there, &found("docs/2-other.org"));
        check(dated, json!({"day": "3"}), &there, &OutputMatch::Missing);
        check("    - pattern: \"**/2-*.org\"\n", json!({}), &there, &found("docs/2-other.org"));
        check("    - pattern: x\n      base: cwd\n", json!({}), &there, &found("x"));
    }

    #[test]
    fn what_cannot_be_known_is_said_to_be_unknown() {
        let unknown = |reason: &str| OutputMatch::Unknown(reason.to_owned());
        let dated = "    - pattern: \"{{day}}.org\"\n";
        check(dated, json!({}), &[], &unknown("the input `day` has no value"));
        check(
            "    - pattern: a\n      base: skill_root\n",
            json!({}),
            &["a"],
            &unknown("they would be in the skill's directory, which nothing can write"),
        );
        let (dir, skill) = skill("    - pattern: a\n");
        let cut = ProducedFiles { files: Vec::new(), complete: false };
        let found = expected_outputs([&skill], &BTreeMap::new(), dir.path(), &cut);
        assert!(matches!(found[0].found, OutputMatch::Unknown(_)));
    }

    #[test]
    fn a_workspace_within_a_repository_has_its_files_below_the_root() {
        let (dir, skill) = skill("    - pattern: \"part/reports/a.md\"\n");
        std::fs::create_dir(dir.path().join(".git")).unwrap();
        let workspace = dir.path().join("part");
        let found = expected_outputs([&skill], &BTreeMap::new(), &workspace, &files(&["reports/a.md"]));
        assert_eq!(found[0].found, OutputMatch::Files(vec!["reports/a.md".into()]));
    }
}

//! Finds and reads the skills that a command names, and formats their problems.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::skill::{
    Diagnostic, Discovery, Inputs as SkillInputs, Missing, Mode, RuleId, Severity, SkillError,
    extract_skill_file,
};
use conjure::{Config, Skill};

use crate::cli::args::InputArg;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::destination::ToolDirs;
use crate::cli::terminal::{Terminal, printable};

/// Reads and parses the values of `--input`, as the manifests of these skills declare them. Blocks.
pub(crate) fn inputs(
    given: &[InputArg],
    skills: &[Arc<Skill>],
    tools: &ToolDirs,
) -> Result<SkillInputs, CliError> {
    let mut inputs = SkillInputs::new();
    for input in given {
        let (name, text) = (&input.name, input.text(tools)?);
        let schema = skills.iter().find_map(|skill| Some(skill.manifest()?.input(name)?.schema()));
        let value = schema.map_or_else(|| text.as_str().into(), |schema| schema.value_of_text(&text));
        if inputs.insert(name.clone(), value).is_some() {
            let told = format!("`--input {name}` is there twice");
            return Err(CliError::usage(told).with_hint("leave one of them out"));
        }
    }
    Ok(inputs)
}

/// Loads the skills of the configuration. Diagnostics are printed as warnings; a named directory that does not exist is
/// an error.
pub(crate) fn load_configured(config: &Config, terminal: &Terminal) -> Result<Vec<Arc<Skill>>, CliError> {
    let Discovery { skills, diagnostics } = discover(config);
    for diagnostic in diagnostics {
        if is_missing_scope(&diagnostic) {
            return Err(CliError::usage(diagnostic.message().to_owned()).with_hint(
                "`--skills`, `skill_paths` and CONJURE_SKILL_PATHS name directories that must exist",
            ));
        }
        match diagnostic.severity() {
            Severity::Info => terminal.note(&format!("note: {}", diagnostic_line(&diagnostic))),
            _ => terminal.warning(&diagnostic_line(&diagnostic)),
        }
    }
    Ok(skills.into_iter().map(Arc::new).collect())
}

/// A diagnostic as one line, without its severity.
pub(crate) fn diagnostic_line(finding: &Diagnostic) -> String {
    let place = finding.position().map(|at| format!(":{}:{}", at.line, at.column)).unwrap_or_default();
    let path = finding.path().to_string_lossy();
    printable(&format!("{path}{place}: {} [{}]", finding.message(), finding.rule()))
}

/// Discovers the skills of the configuration's scopes for a program in the current directory.
pub(crate) fn discover(config: &Config) -> Discovery {
    conjure::skill::load_configured(config, project().as_deref())
}

/// The project whose skills are loaded, if it is trusted: the current directory.
pub(super) fn project() -> Option<PathBuf> {
    std::env::current_dir().ok()
}

fn is_missing_scope(diagnostic: &Diagnostic) -> bool {
    diagnostic.is_error() && matches!(diagnostic.rule(), RuleId::PathMissing | RuleId::NotADirectory)
}

/// The path of a skill for people: its `SKILL.md`, or its package. The directory of an unpacked package is not shown, because it is removed
/// when this program ends.
pub(super) fn display_path(skill: &Skill) -> PathBuf {
    match skill.package() {
        Some(package) => package.canonicalize().unwrap_or_else(|_| package.to_owned()),
        None => skill.location().to_owned(),
    }
}

/// Loads the skill at `path`. The error has the exit code 1 if the skill is not valid, and 2 if nothing exists there.
pub(super) fn read(path: &Path, mode: Mode) -> Result<Skill, CliError> {
    load(path, mode).map_err(skill_error)
}

/// Loads the skill at `path` as the format's reference implementation prints it: only the name and the description
/// must be valid. Other problems are printed as warnings.
pub(super) fn read_as_reference(path: &Path, terminal: &Terminal) -> Result<Skill, CliError> {
    let findings = match load(path, Mode::Strict) {
        Err(SkillError::InvalidFrontmatter { diagnostics, .. })
            if !diagnostics.iter().any(|finding| finding.is_error() && is_unreadable(finding.rule())) =>
        {
            diagnostics
        }
        strict => return strict.map_err(skill_error),
    };
    let skill = read(path, Mode::Lenient)?;
    for finding in &findings {
        terminal.warning(&diagnostic_line(finding));
    }
    Ok(skill)
}

/// Whether the reference implementation refuses to print a skill that breaks this rule.
const fn is_unreadable(rule: RuleId) -> bool {
    !matches!(
        rule,
        RuleId::UnknownField
            | RuleId::NameTooLong
            | RuleId::NameNotLowercase
            | RuleId::NameEdgeHyphen
            | RuleId::NameDoubleHyphen
            | RuleId::NameCharacters
            | RuleId::NameDirectoryMismatch
            | RuleId::DescriptionTooLong
            | RuleId::DescriptionDeceptive
            | RuleId::CompatibilityNotText
            | RuleId::CompatibilityTooLong
            | RuleId::FieldNotText
            | RuleId::MetadataShape
            | RuleId::AllowedTools
    )
}

/// Loads the skill at `path`, with the library's error.
pub(super) fn load(path: &Path, mode: Mode) -> Result<Skill, SkillError> {
    if is_package(path) {
        extract_skill_file(path).and_then(|dir| dir.load(mode))
    } else {
        Skill::load(path, mode)
    }
}

/// The error of a skill that cannot be used, with all problems of its frontmatter. An existing file that cannot be used is not a valid
/// skill. Examples are a pipe, a link that leads out, and a file that is too large or unreadable.
pub(super) fn skill_error(error: SkillError) -> CliError {
    match error {
        SkillError::InvalidFrontmatter { diagnostics, .. }
        | SkillError::InvalidManifest { diagnostics, .. }
        | SkillError::UnsupportedManifest { diagnostics, .. } => {
            let lines: Vec<String> = diagnostics.iter().map(diagnostic_line).collect();
            CliError::new(ExitStatus::Failed, format!("not a valid skill:\n  {}", lines.join("\n  ")))
        }
        error => {
            let exit = if is_not_found(&error) { ExitStatus::Usage } else { ExitStatus::Failed };
            CliError { exit, ..conjure::Error::from(error).into() }
        }
    }
}

pub(super) fn is_not_found(error: &SkillError) -> bool {
    matches!(error, SkillError::NotFound { missing: Missing::Path, .. } | SkillError::FileNotFound { .. })
}

/// Whether a path names a `.skill` package.
pub(super) fn is_package(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "skill") && !path.is_dir()
}

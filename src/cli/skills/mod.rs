//! `conjure skills …`: list, check, show, pack and upload skills. Runs nothing of a skill.

mod check;
mod inspect;
mod list;
mod pack;
#[cfg(feature = "anthropic")]
mod push;
#[cfg(feature = "anthropic")]
mod remote;
mod validate;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::{
    Config, Diagnostic, Discovery, Environment, Locations, Missing, Mode, RuleId, Settings, Severity, Skill,
    SkillError, SkillInputs, available_skills_block_at, extract_skill_file,
};

use crate::cli::args::{Given, SkillsCommand};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::terminal::{Terminal, printable};

/// Does what the subcommand says.
#[cfg_attr(
    not(feature = "anthropic"),
    expect(unused_variables, reason = "the environment has the key of the service")
)]
pub(crate) async fn skills(
    command: SkillsCommand,
    config: Config,
    environment: Environment,
    terminal: Arc<Terminal>,
) -> Result<Exit, Failure> {
    let (config, terminal) = (&config, &terminal);
    match &command {
        #[cfg(feature = "anthropic")]
        SkillsCommand::Push(args) => push::push(args, config, &environment, terminal).await,
        #[cfg(feature = "anthropic")]
        SkillsCommand::Remote { command } => remote::remote(command, config, &environment, terminal).await,
        SkillsCommand::List { skills, format } => {
            let skill_paths = (!skills.is_empty()).then(|| skills.clone());
            list::list(&config.with(Settings { skill_paths, ..Settings::default() })?, *format, terminal)
        }
        SkillsCommand::Validate(args) => validate::validate(args, terminal),
        SkillsCommand::Check(args) => check::check(args, config, terminal).await,
        SkillsCommand::Properties { path } => {
            terminal.output(&read_as_reference(path, terminal)?.properties().to_json());
            Ok(Exit::Done)
        }
        SkillsCommand::Prompt { paths } => {
            let skills =
                paths.iter().map(|path| read_as_reference(path, terminal)).collect::<Result<Vec<_>, _>>()?;
            let places: HashMap<PathBuf, PathBuf> =
                skills.iter().map(|skill| (skill.location().to_owned(), place(skill))).collect();
            let locations = Locations::mapped(move |path| places.get(path).cloned());
            terminal.output(&available_skills_block_at(&skills, &locations));
            Ok(Exit::Done)
        }
        SkillsCommand::Pack { path, output } => pack::pack(path, output.as_deref(), terminal),
        SkillsCommand::Inspect { path, format } => {
            inspect::inspect(&read(path, Mode::Lenient)?, *format, terminal)
        }
    }
}

/// The values that `--input` gives, read as the manifests of these skills say.
pub(crate) fn inputs(given: &[Given], skills: &[Arc<Skill>]) -> Result<SkillInputs, Failure> {
    let mut inputs = SkillInputs::new();
    for Given { name, text } in given {
        let schema = skills.iter().find_map(|skill| Some(skill.manifest()?.input(name)?.schema()));
        let value = schema.map_or_else(|| text.as_str().into(), |schema| schema.value_of_text(text));
        if inputs.insert(name.clone(), value).is_some() {
            let told = format!("`--input {name}` is there twice");
            return Err(Failure::usage(told).hint("leave one of them out"));
        }
    }
    Ok(inputs)
}

/// The skills of the configuration. What is not loaded is told as a warning; a folder that was named and is not
/// there is an error.
pub(crate) fn found(config: &Config, terminal: &Terminal) -> Result<Vec<Arc<Skill>>, Failure> {
    let Discovery { skills, diagnostics } = discover(config);
    for diagnostic in diagnostics {
        if is_missing_scope(&diagnostic) {
            return Err(Failure::usage(diagnostic.message().to_owned())
                .hint("`--skills`, `skill_paths` and CONJURE_SKILL_PATHS name folders that must exist"));
        }
        match diagnostic.severity() {
            Severity::Info => terminal.note(&format!("note: {}", told(&diagnostic))),
            _ => terminal.warning(&told(&diagnostic)),
        }
    }
    Ok(skills.into_iter().map(Arc::new).collect())
}

/// A finding in a line for people. What it weighs is said by the word before it.
pub(crate) fn told(finding: &Diagnostic) -> String {
    let place = finding.position().map(|at| format!(":{}:{}", at.line, at.column)).unwrap_or_default();
    let path = finding.path().to_string_lossy();
    printable(&format!("{path}{place}: {} [{}]", finding.message(), finding.rule()))
}

/// What the configuration's scopes hold, for a program that runs in the current folder.
pub(crate) fn discover(config: &Config) -> Discovery {
    let project: Option<PathBuf> = std::env::current_dir().ok();
    conjure::load_configured(config, project.as_deref())
}

fn is_missing_scope(diagnostic: &Diagnostic) -> bool {
    diagnostic.is_error() && matches!(diagnostic.rule(), RuleId::PathMissing | RuleId::NotADirectory)
}

/// Where people find a skill: its `SKILL.md`, or the package that it is in. The folder that a package was unpacked into is
/// gone when this program has ended.
fn place(skill: &Skill) -> PathBuf {
    match skill.package() {
        Some(package) => package.canonicalize().unwrap_or_else(|_| package.to_owned()),
        None => skill.location().to_owned(),
    }
}

/// The skill at `path`. Exit code 1 when what is there is not a valid one, 2 when nothing is there.
fn read(path: &Path, mode: Mode) -> Result<Skill, Failure> {
    load(path, mode).map_err(refused)
}

/// The skill at `path` as the format's reference implementation reads it to print it: it checks no more than that there is a name
/// and a description. What else is wrong is told as warnings.
fn read_as_reference(path: &Path, terminal: &Terminal) -> Result<Skill, Failure> {
    let findings = match load(path, Mode::Strict) {
        Err(SkillError::InvalidFrontmatter { diagnostics, .. })
            if !diagnostics.iter().any(|finding| finding.is_error() && is_unreadable(finding.rule())) =>
        {
            diagnostics
        }
        strict => return strict.map_err(refused),
    };
    let skill = read(path, Mode::Lenient)?;
    for finding in &findings {
        terminal.warning(&told(finding));
    }
    Ok(skill)
}

/// Whether the reference refuses to print a skill that breaks this rule.
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

/// The same, with what is wrong as the library says it.
fn load(path: &Path, mode: Mode) -> Result<Skill, SkillError> {
    if is_package(path) {
        extract_skill_file(path).and_then(|folder| folder.load(mode))
    } else {
        Skill::load(path, mode)
    }
}

/// Why a skill cannot be used, with all that is wrong with its frontmatter. What is there and cannot be used (a pipe, a
/// link that leads out, a file that is too large or may not be read) is not a valid skill.
fn refused(error: SkillError) -> Failure {
    match error {
        SkillError::InvalidFrontmatter { diagnostics, .. }
        | SkillError::InvalidManifest { diagnostics, .. }
        | SkillError::UnsupportedManifest { diagnostics, .. } => {
            let lines: Vec<String> = diagnostics.iter().map(told).collect();
            Failure::new(Exit::Failed, format!("not a valid skill:\n  {}", lines.join("\n  ")))
        }
        error => {
            let exit = if is_nothing_there(&error) { Exit::Usage } else { Exit::Failed };
            Failure { exit, ..conjure::Error::from(error).into() }
        }
    }
}

fn is_nothing_there(error: &SkillError) -> bool {
    matches!(error, SkillError::NotFound { missing: Missing::Path, .. } | SkillError::FileNotFound { .. })
}

/// Whether a path names a `.skill` package.
fn is_package(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "skill") && !path.is_dir()
}

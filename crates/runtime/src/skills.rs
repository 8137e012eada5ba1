//! Loading skills and reading them (specification 5.1), as functions.

use std::borrow::Borrow;
use std::path::{Path, PathBuf};

use conjure_skill::{Discovery, DiscoveryLimits, Mode, Skill, discover};

use crate::config::Config;
use crate::error::Error;

/// Loads the metadata of all skills beneath a folder (specification 5.1); bodies are read on demand. What cannot be
/// loaded is told in the diagnostics, and logged, and hides nothing else.
///
/// ```
/// let found = conjure::load("../../fixtures/skills")?;
/// let skill = conjure::skill::find_skill(&found.skills, "sales-report")?;
/// assert!(skill.description().contains("growth"));
/// assert!(conjure::skill::load_body(skill)?.contains("# Sales report"));
/// # Ok::<(), conjure::Error>(())
/// ```
///
/// # Errors
/// When the folder is not there.
pub fn load(path: impl AsRef<Path>) -> Result<Discovery, Error> {
    load_all([path.as_ref()])
}

/// Loads the skills of several folders; of two with one name, that of the earlier folder stays.
///
/// # Errors
/// When one of the folders is not there.
pub fn load_all(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Result<Discovery, Error> {
    let found = conjure_skill::load_all(paths)?;
    warn(&found);
    Ok(found)
}

/// Loads the skills of the configuration's scopes, for a program that runs in `project`.
#[must_use]
pub fn load_configured(config: &Config, project: Option<&Path>) -> Discovery {
    let found = discover(&config.skill_scopes(project), DiscoveryLimits::default(), Mode::Lenient);
    warn(&found);
    found
}

/// What is recoverable is logged as a warning (specification 12.2).
fn warn(found: &Discovery) {
    for diagnostic in &found.diagnostics {
        tracing::warn!("{diagnostic}");
    }
}

/// Loads a `.skill` package (specification 5.1, 6.3), with the default limits. It is unpacked into a private folder
/// that goes when the skill and its clones do.
///
/// # Errors
/// When the package is not there, is not one, exceeds a limit, or its skill is not valid; the error names the entry.
pub fn load_skill_file(path: impl AsRef<Path>) -> Result<Skill, Error> {
    Ok(conjure_skill::load_skill_file(path, Mode::Lenient)?)
}

/// The skill of this name.
///
/// # Errors
/// When there is none; the error holds the names that there are.
pub fn find_skill<'s, S: Borrow<Skill>>(skills: &'s [S], name: &str) -> Result<&'s Skill, Error> {
    let mut all = skills.iter().map(Borrow::borrow);
    all.find(|skill| skill.name().as_str() == name).ok_or_else(|| Error::SkillNotFound {
        name: name.to_owned(),
        available: skills.iter().map(|skill| skill.borrow().name().to_string()).collect(),
    })
}

/// The instructions of a skill: the text of its `SKILL.md` without the frontmatter (specification 5.1).
///
/// # Errors
/// When the file is gone or cannot be read.
pub fn load_body(skill: &Skill) -> Result<String, Error> {
    Ok(skill.body()?)
}

/// The bytes of a file of a skill, by its path relative to the skill's folder (specification 5.1).
///
/// # Errors
/// When the file is not there, is no regular file, leads out of the folder, or is larger than 32 MiB.
pub fn read_resource(skill: &Skill, relative: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
    Ok(skill.read_resource(relative)?)
}

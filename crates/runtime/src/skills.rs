//! Loading skills and reading them (specification 5.1), as functions.

use std::borrow::Borrow;
use std::path::{Path, PathBuf};

use conjure_skill::{Discovery, DiscoveryLimits, Mode, Skill, discover};

use crate::config::Config;
use crate::error::Error;

/// Loads the metadata of all skills beneath a directory (specification 5.1). Bodies are read on demand. Skills that
/// cannot be loaded are reported in the diagnostics and logged; the others are loaded.
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
/// If the directory does not exist.
pub fn load(path: impl AsRef<Path>) -> Result<Discovery, Error> {
    load_all([path.as_ref()])
}

/// Loads the skills of several directories. If two have the same name, the one of the earlier directory is kept.
///
/// # Errors
/// If one of the directories does not exist.
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

/// Logs recoverable problems as warnings (specification 12.2).
fn warn(found: &Discovery) {
    for diagnostic in &found.diagnostics {
        tracing::warn!("{diagnostic}");
    }
}

/// Loads a `.skill` package (specification 5.1, 6.3) with the default limits. It is unpacked into a private directory,
/// which is removed with the skill and its clones.
///
/// # Errors
/// If the package does not exist, is not a package, exceeds a limit, or contains an invalid skill. The error names the
/// entry.
pub fn load_skill_file(path: impl AsRef<Path>) -> Result<Skill, Error> {
    Ok(conjure_skill::load_skill_file(path, Mode::Lenient)?)
}

/// The skill with this name.
///
/// # Errors
/// If there is none. The error contains the existing names.
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
/// If the file was removed or cannot be read.
pub fn load_body(skill: &Skill) -> Result<String, Error> {
    Ok(skill.body()?)
}

/// The bytes of a file of a skill, by its path relative to the skill's directory (specification 5.1).
///
/// # Errors
/// If the file does not exist, is not a regular file, leads out of the directory, or is larger than 32 MiB.
pub fn read_resource(skill: &Skill, relative: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
    Ok(skill.read_resource(relative)?)
}

//! Finds the skills of a directory, checks them as strictly as the service does, and hashes them.

use std::path::{Path, PathBuf};

use conjure_base::Digest;
use conjure_skill::{Diagnostic, Discovery, DiscoveryLimits, Mode, RuleId, Scope, Skill, discover};

use crate::hosted::sync::{SkillFailure, SyncError};
use crate::hosted::{HostedLimits, SkillBundle};

/// The skills of a directory.
#[derive(Debug)]
pub(super) struct LocalSkills {
    /// The directory's path as recorded in the index.
    pub(super) dir: String,
    /// The skills, sorted by name.
    pub(super) skills: Vec<LocalSkill>,
    /// Diagnostics about skipped or repaired skills.
    pub(super) warnings: Vec<Diagnostic>,
}

/// One skill of the directory.
#[derive(Debug)]
pub(super) struct LocalSkill {
    /// Its name; for an invalid skill, the directory's name.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) content: Result<UploadCandidate, SkillFailure>,
}

/// A valid skill that can be uploaded.
#[derive(Debug, Clone)]
pub(super) struct UploadCandidate {
    pub(super) bundle: SkillBundle,
    pub(super) digest: Digest,
}

/// Scans a directory for skills. `dir` may also be a skill or a package. Blocks.
pub(super) fn scan(dir: &Path, limits: &HostedLimits) -> Result<LocalSkills, SyncError> {
    let Discovery { skills, diagnostics } =
        discover(&[Scope::named(dir)], DiscoveryLimits::default(), Mode::Lenient);
    let is_missing = |found: &&Diagnostic| {
        found.is_error() && matches!(found.rule(), RuleId::PathMissing | RuleId::NotADirectory)
    };
    if let Some(missing) = diagnostics.iter().find(is_missing) {
        return Err(SyncError::Dir { reason: missing.message().to_owned() });
    }
    let found: Vec<LocalSkill> = skills.iter().map(|skill| examine(skill, limits)).collect();
    let (refused, warnings): (Vec<Diagnostic>, Vec<Diagnostic>) =
        diagnostics.into_iter().partition(Diagnostic::is_error);
    let mut skills = found;
    for diagnostic in refused {
        let path = diagnostic.path().to_owned();
        let reason = match diagnostic.position() {
            Some(at) => format!("line {}, column {}: {}", at.line, at.column, diagnostic.message()),
            None => diagnostic.message().to_owned(),
        };
        match skills.iter_mut().find(|skill| skill.path == path) {
            // The same skill has another problem.
            Some(LocalSkill { content: Err(SkillFailure::Invalid { reason: all }), .. }) => {
                all.push_str("; ");
                all.push_str(&reason);
            }
            Some(_) => {}
            None => {
                let content = Err(SkillFailure::Invalid { reason });
                skills.push(LocalSkill { name: directory_name(&path), path, content });
            }
        }
    }
    skills.sort_by(|a, b| (&a.name, &a.path).cmp(&(&b.name, &b.path)));
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    Ok(LocalSkills { dir: dir.to_string_lossy().into_owned(), skills, warnings })
}

/// Checks a skill strictly. The service refuses some skills that discovery accepts with a warning.
fn examine(skill: &Skill, limits: &HostedLimits) -> LocalSkill {
    let path = skill.package().unwrap_or_else(|| skill.location()).to_owned();
    let opened = SkillBundle::open(skill.package().unwrap_or_else(|| skill.root_dir()), limits);
    let candidate = opened.and_then(|bundle| {
        let digest = bundle.digest()?;
        Ok(UploadCandidate { bundle, digest })
    });
    let content = candidate.map_err(|error| SkillFailure::Invalid { reason: error.to_string() });
    LocalSkill { name: skill.name().to_string(), path, content }
}

/// The name that a skill at this path should have: that of its directory or package.
fn directory_name(path: &Path) -> String {
    let is_main = path.file_name().is_some_and(|name| name.eq_ignore_ascii_case("SKILL.md"));
    let dir = if is_main { path.parent().unwrap_or(path) } else { path };
    dir.file_stem().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned()
}

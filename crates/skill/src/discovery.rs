//! Discovery: finds skills in the directories where people keep them.
//!
//! Each scope is scanned, and the results are sorted by path. Of several skills with one name, the one of the highest
//! rank is used. A package is unpacked at once, because a sandbox needs its files, and so later steps cannot fail. It
//! counts as a directory in the [`DiscoveryLimits`]. Packages are unpacked one by one, in the order of paths. So only
//! this order decides which packages fit into the disk budget.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::error::{Missing, SkillError};
use crate::frontmatter::Mode;
use crate::scan::dir_handle::{RegularFile, open_direct};
use crate::scan::scope_scan::{CandidateKind, DiscoveryLimits, ScopeScanner, SkillCandidate, resolve};
use crate::skill::{SKILL_FILES, Skill, find_skill_file};

/// The kind of a scope, which is its rank. Of two skills with one name, the one of the earlier kind is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeKind {
    /// Named by the embedder or on the command line. It must exist.
    Named,
    /// The project.
    Project,
    /// The user.
    User,
    /// The machine.
    System,
}

/// Whether the skills of a scope may be shown to a model. The skills of a project come from the project's author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trust {
    /// The user has trusted the scope.
    Trusted,
    /// The user has not trusted the scope: its skills are not loaded.
    Untrusted,
}

/// A directory to search for skills.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The directory. It may also be a skill or a `.skill` package.
    pub path: PathBuf,
    /// Its kind: the rank of its skills.
    pub kind: ScopeKind,
    /// Whether its skills are loaded.
    pub trust: Trust,
}

impl Scope {
    /// A trusted scope that must exist.
    #[must_use]
    pub fn named(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), kind: ScopeKind::Named, trust: Trust::Trusted }
    }
}

/// The result of discovery.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    /// One skill of each name: by rank of the scope, then by path.
    pub skills: Vec<Skill>,
    /// What was skipped, repaired, or found twice.
    pub diagnostics: Vec<Diagnostic>,
}

/// The scopes by rank.
pub(crate) fn by_rank(scopes: &[Scope]) -> Vec<&Scope> {
    let mut ranked: Vec<&Scope> = scopes.iter().collect();
    ranked.sort_by_key(|scope| scope.kind);
    ranked
}

/// The skills by rank. Of several skills with one name, it keeps the first.
#[derive(Default)]
pub(crate) struct RankedSkills {
    pub(crate) skills: Vec<Arc<Skill>>,
    /// The index of each name in `skills`.
    seen_names: BTreeMap<String, usize>,
}

impl RankedSkills {
    /// Adds the next results, and reports name collisions.
    pub(crate) fn add(&mut self, found: Vec<Arc<Skill>>, diagnostics: &mut Vec<Diagnostic>) {
        for skill in found {
            diagnostics.extend_from_slice(skill.diagnostics());
            let name = skill.name().as_str();
            match self.seen_names.get(name).map(|&first| &self.skills[first]) {
                None => {
                    self.seen_names.insert(name.to_owned(), self.skills.len());
                    self.skills.push(skill);
                }
                // The same directory or package, reached by two scopes.
                Some(first) if first.source() == skill.source() => {}
                Some(first) => diagnostics.push(collision(first, &skill)),
            }
        }
    }
}

/// Returns the directories of all skills in a directory, and the `.skill` packages, sorted by path. They need not be
/// valid.
///
/// # Errors
/// When it does not exist or is not a directory.
pub fn scan_directory(path: impl AsRef<Path>, limits: DiscoveryLimits) -> Result<Vec<PathBuf>, SkillError> {
    let scanner = ScopeScanner::new(resolve(path.as_ref())?, limits, |candidate: &SkillCandidate| {
        match candidate.kind {
            CandidateKind::Package => Ok(Some(())),
            CandidateKind::Dir => open_skill_file(&candidate.path).map(|file| file.map(|_| ())),
        }
    });
    let mut paths: Vec<_> = scanner.run().found.into_iter().map(|(path, _)| path).collect();
    paths.sort();
    Ok(paths)
}

/// The result of opening a scope.
pub(crate) enum ScopeAccess {
    /// The scope can be scanned from this directory.
    Open(SkillCandidate),
    /// The scope does not exist or is not trusted: it has no skills.
    Closed,
    /// The scope cannot be read, so its skills are unknown.
    Unreachable,
}

/// Opens a scope for scanning.
pub(crate) fn open_scope(scope: &Scope, diagnostics: &mut Vec<Diagnostic>) -> ScopeAccess {
    match resolve(&scope.path) {
        Err(SkillError::NotFound { missing: Missing::Path, .. }) if scope.kind != ScopeKind::Named => {
            ScopeAccess::Closed
        }
        Err(error) => {
            let access = if matches!(error, SkillError::NotFound { .. }) {
                ScopeAccess::Closed
            } else {
                ScopeAccess::Unreachable
            };
            diagnostics.extend(error.into_diagnostics());
            access
        }
        Ok(_) if scope.trust == Trust::Untrusted => {
            let message = "the skills of this directory are not loaded, because it is not trusted";
            let path = &scope.path;
            diagnostics.push(Diagnostic::new(RuleId::ScopeUntrusted, Severity::Warning, message, path));
            ScopeAccess::Closed
        }
        Ok(root) => ScopeAccess::Open(root),
    }
}

/// Loads the skill in a directory, if the directory is a skill.
pub(crate) fn load_dir(candidate: &SkillCandidate, mode: Mode) -> Result<Option<Skill>, SkillError> {
    let Some((name, file)) = open_skill_file(&candidate.path)? else { return Ok(None) };
    Skill::read(candidate.path.clone(), name, &candidate.name, file, mode).map(Some)
}

/// Returns the findings of an error about the skill at a path.
pub(crate) fn findings_at(error: SkillError, path: &Path) -> impl Iterator<Item = Diagnostic> {
    let findings = error.into_diagnostics().into_iter();
    findings
        .map(|finding| if finding.path().as_os_str().is_empty() { finding.in_file(path) } else { finding })
}

fn collision(first: &Skill, second: &Skill) -> Diagnostic {
    let message = format!(
        "a skill `{}` was already found at `{}`; this one is not loaded",
        first.name(),
        first.source().display()
    );
    Diagnostic::new(RuleId::NameCollision, Severity::Warning, message, second.source())
}

/// Opens the `SKILL.md` of a directory, if there is one. The directory's path contains no link.
fn open_skill_file(dir: &Path) -> Result<Option<(&'static str, RegularFile)>, SkillError> {
    for name in SKILL_FILES {
        match open_direct(&dir.join(name)) {
            Ok(file) => return Ok(Some((name, file))),
            Err(SkillError::FileNotFound { .. }) => {}
            // It may be a link within the skill.
            Err(SkillError::PathNotAllowed { .. }) => {
                return match find_skill_file(dir) {
                    Err(SkillError::NotFound { .. }) => Ok(None),
                    other => other.map(Some),
                };
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;

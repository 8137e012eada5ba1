//! Finding skills in the folders where people keep them.
//!
//! Each scope is walked, what is found is put in the order of paths, and of the skills with one name that of the highest
//! rank is taken. A package is unpacked as soon as it is found: its files must have a place for a sandbox to see them,
//! and then nothing can go wrong with it later. It counts as a folder among the [`Bounds`]. Packages are unpacked one by
//! one, in the order of paths, so that which of them find room depends on nothing else.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::catalog::Catalog;
use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::error::{Missing, SkillError};
use crate::files::{PlainFile, open_direct};
use crate::frontmatter::Mode;
use crate::package::{Budget, load_package_within};
use crate::skill::{SKILL_FILES, Skill, find_skill_file};
use crate::walk::{Place, PlaceKind, Walk, resolve};

/// Whose skills a scope holds. Of two skills with one name the one of the earlier kind is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeKind {
    /// Named by the host or on the command line: must exist.
    Named,
    /// The project's.
    Project,
    /// The user's.
    User,
    /// The machine's.
    System,
}

/// Whether a scope's skills may be shown to a model. A project's come from whoever wrote the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Somebody has said so.
    Trusted,
    /// Nobody has: its skills are not loaded.
    Untrusted,
}

/// A folder in which skills are looked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The folder. It may also be a skill itself, or a `.skill` package.
    pub path: PathBuf,
    /// Whose it is: the rank of its skills.
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

/// How far discovery looks in each scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// How many levels below the scope's folder.
    pub depth: usize,
    /// How many folders and packages, skills' own folders included.
    pub directories: usize,
    /// How many bytes all packages together may take on disk when they are unpacked, in blocks of 4 KiB, with a block
    /// for each folder. In a reload, those that stay loaded count first.
    pub package_bytes: u64,
    /// Where links may lead.
    pub links: Links,
}

impl Default for Bounds {
    /// 6 levels, 2000 folders, 500 MB of packages, links to anywhere.
    fn default() -> Self {
        Self { depth: 6, directories: 2000, package_bytes: 500_000_000, links: Links::Anywhere }
    }
}

/// Where links of a scope may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Links {
    /// Anywhere: for folders that nobody writes whom one does not trust with all that this process may read.
    #[default]
    Anywhere,
    /// To what lies in the scope. A link that leads out of it is not followed, and is told.
    WithinScope,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    /// One skill of each name: by rank of the scope, then by path.
    pub skills: Vec<Skill>,
    /// What was skipped, repaired, or found twice.
    pub diagnostics: Vec<Diagnostic>,
}

impl Discovery {
    /// The skills as a catalog.
    #[must_use]
    pub fn into_catalog(self) -> Catalog {
        Catalog::new(self.skills)
    }
}

/// Loads the metadata of all skills in these scopes. Nothing that is found is an error: what cannot be loaded is a
/// diagnostic, and the others are loaded. A scope that does not exist is an error among the diagnostics when it is
/// [named](ScopeKind::Named), else not remarkable.
#[must_use]
pub fn discover(scopes: &[Scope], bounds: Bounds, mode: Mode) -> Discovery {
    let mut diagnostics = Vec::new();
    let mut chosen = Chosen::default();
    let mut budget = Budget::new(bounds.package_bytes);
    for scope in ranked(scopes) {
        let found = scan_scope(scope, bounds, mode, &mut budget, &mut diagnostics);
        chosen.add(found, &mut diagnostics);
    }
    Discovery { skills: chosen.skills, diagnostics }
}

/// The scopes by rank.
pub(crate) fn ranked(scopes: &[Scope]) -> Vec<&Scope> {
    let mut ranked: Vec<&Scope> = scopes.iter().collect();
    ranked.sort_by_key(|scope| scope.kind);
    ranked
}

/// Of the skills with one name the first.
pub(crate) struct Chosen<S> {
    pub(crate) skills: Vec<S>,
    /// The place of each name among them.
    taken: BTreeMap<String, usize>,
}

impl<S> Default for Chosen<S> {
    fn default() -> Self {
        Self { skills: Vec::new(), taken: BTreeMap::new() }
    }
}

impl<S: Borrow<Skill>> Chosen<S> {
    /// Adds what was found next, and says what is remarkable about it.
    pub(crate) fn add(&mut self, found: Vec<S>, diagnostics: &mut Vec<Diagnostic>) {
        for found in found {
            let skill: &Skill = found.borrow();
            diagnostics.extend_from_slice(skill.diagnostics());
            let name = skill.name().as_str();
            match self.taken.get(name).map(|&first| self.skills[first].borrow()) {
                None => {
                    self.taken.insert(name.to_owned(), self.skills.len());
                    self.skills.push(found);
                }
                // The same folder or package, reached by two scopes.
                Some(first) if first.source() == skill.source() => {}
                Some(first) => diagnostics.push(collision(first, skill)),
            }
        }
    }
}

/// Loads the metadata of all skills in these folders, leniently, with the default bounds; earlier folders have the
/// higher rank.
///
/// # Errors
/// When one of the folders does not exist or is not a folder.
pub fn load_all(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Result<Discovery, SkillError> {
    let scopes: Vec<_> = paths.into_iter().map(Scope::named).collect();
    for scope in &scopes {
        resolve(&scope.path)?;
    }
    Ok(discover(&scopes, Bounds::default(), Mode::Lenient))
}

/// The folders of all skills in a folder, and the `.skill` packages, in the order of paths, whether or not they are
/// valid.
///
/// # Errors
/// When it does not exist or is not a folder.
pub fn scan_directory(path: impl AsRef<Path>, bounds: Bounds) -> Result<Vec<PathBuf>, SkillError> {
    let walk = Walk::new(resolve(path.as_ref())?, bounds, |place: &Place| match place.kind {
        PlaceKind::Package => Ok(Some(())),
        PlaceKind::Folder => open_skill_file(&place.path).map(|file| file.map(|_| ())),
    });
    let mut paths: Vec<_> = walk.run().found.into_iter().map(|(path, _)| path).collect();
    paths.sort();
    Ok(paths)
}

/// The skills of one scope, in the order of paths.
fn scan_scope(
    scope: &Scope,
    bounds: Bounds,
    mode: Mode,
    budget: &mut Budget,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Skill> {
    /// What a place is: packages wait for their turn.
    enum Seen {
        Folder(Box<Skill>),
        Package,
    }
    let Entrance::Open(root) = enter(scope, diagnostics) else { return Vec::new() };
    let walk = Walk::new(root, bounds, |place: &Place| match place.kind {
        PlaceKind::Package => Ok(Some(Seen::Package)),
        PlaceKind::Folder => Ok(load_folder(place, mode)?.map(|skill| Seen::Folder(Box::new(skill)))),
    });
    let mut walked = walk.run();
    walked.found.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut findings = walked.findings;
    let mut skills = Vec::with_capacity(walked.found.len());
    for (path, seen) in walked.found {
        let outcome = seen.and_then(|seen| match seen {
            Seen::Folder(skill) => Ok(*skill),
            Seen::Package => load_package_within(&path, mode, budget),
        });
        match outcome {
            Ok(skill) => skills.push(skill),
            Err(error) => findings.extend(findings_at(error, &path)),
        }
    }
    skills.sort_by(|a, b| a.source().cmp(b.source()));
    findings.sort_by(|a, b| a.path().cmp(b.path()));
    diagnostics.extend(findings);
    skills
}

/// Whether a scope can be walked through.
pub(crate) enum Entrance {
    /// From here on.
    Open(Place),
    /// It does not exist or is not trusted: there are no skills in it.
    Closed,
    /// It cannot be told which skills are in it.
    Unreachable,
}

/// Finds where the walk through a scope begins.
pub(crate) fn enter(scope: &Scope, diagnostics: &mut Vec<Diagnostic>) -> Entrance {
    match resolve(&scope.path) {
        Err(SkillError::NotFound { missing: Missing::Path, .. }) if scope.kind != ScopeKind::Named => {
            Entrance::Closed
        }
        Err(error) => {
            let entrance = if matches!(error, SkillError::NotFound { .. }) {
                Entrance::Closed
            } else {
                Entrance::Unreachable
            };
            diagnostics.extend(error.into_diagnostics());
            entrance
        }
        Ok(_) if scope.trust == Trust::Untrusted => {
            let message = "the skills of this folder are not loaded, because it is not trusted";
            let path = &scope.path;
            diagnostics.push(Diagnostic::new(RuleId::ScopeUntrusted, Severity::Warning, message, path));
            Entrance::Closed
        }
        Ok(root) => Entrance::Open(root),
    }
}

/// Loads the skill that a folder is, if it is one.
pub(crate) fn load_folder(place: &Place, mode: Mode) -> Result<Option<Skill>, SkillError> {
    let Some((name, file)) = open_skill_file(&place.path)? else { return Ok(None) };
    Skill::read(place.path.clone(), name, &place.name, file, mode).map(Some)
}

/// Why the skill at a path could not be loaded.
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

/// Opens the `SKILL.md` of a folder that is reached through no link, if it has one.
fn open_skill_file(folder: &Path) -> Result<Option<(&'static str, PlainFile)>, SkillError> {
    for name in SKILL_FILES {
        match open_direct(&folder.join(name)) {
            Ok(file) => return Ok(Some((name, file))),
            Err(SkillError::FileNotFound { .. }) => {}
            // It may be a link within the skill.
            Err(SkillError::PathNotAllowed { .. }) => {
                return match find_skill_file(folder) {
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

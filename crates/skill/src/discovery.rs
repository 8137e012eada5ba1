//! Finding skills in the folders where people keep them.
//!
//! Scopes are walked breadth first, level by level, so that what a bound cuts off is the deepest; the folders of a level
//! are looked at by a few threads. The outcome does not depend on the threads: it is put in the order of the paths.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;

use crate::catalog::Catalog;
use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::error::{Missing, SkillError};
use crate::files::{EntryKind, PlainFile, entries, open_direct, open_folder_direct};
use crate::frontmatter::Mode;
use crate::skill::{SKILL_FILES, Skill, find_skill_file};

/// Folders that are never looked into.
const SKIPPED: [&str; 2] = [".git", "node_modules"];

/// With fewer folders than this a thread costs more than it saves.
const FOLDERS_PER_THREAD: usize = 64;
const MAX_THREADS: usize = 8;

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
    /// The folder. It may also be a skill itself.
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
    /// How many folders, skills' own included.
    pub directories: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { depth: 6, directories: 2000 }
    }
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
    let mut ranked: Vec<&Scope> = scopes.iter().collect();
    ranked.sort_by_key(|scope| scope.kind);
    let mut outcome = Discovery::default();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    for scope in ranked {
        for skill in scan_scope(scope, bounds, mode, &mut outcome.diagnostics) {
            outcome.diagnostics.extend_from_slice(skill.diagnostics());
            match taken.get(skill.name().as_str()) {
                None => {
                    taken.insert(skill.name().as_str().to_owned(), outcome.skills.len());
                    outcome.skills.push(skill);
                }
                // The same folder, reached by two scopes.
                Some(&first) if outcome.skills[first].location() == skill.location() => {}
                Some(&first) => outcome.diagnostics.push(collision(&outcome.skills[first], &skill)),
            }
        }
    }
    outcome
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

/// The folders of all skills in a folder, in the order of paths, whether or not they are valid.
///
/// # Errors
/// When it does not exist or is not a folder.
pub fn scan_directory(path: impl AsRef<Path>, bounds: Bounds) -> Result<Vec<PathBuf>, SkillError> {
    let root = resolve(path.as_ref())?;
    let found = Walk::new(root, bounds, |folder: &Folder| {
        let file = open_skill_file(&folder.path);
        file.map(|file| file.map(|_| folder.path.clone()))
    });
    let mut folders: Vec<_> = found.run().0.into_iter().map(|(path, _)| path).collect();
    folders.sort();
    Ok(folders)
}

/// The skills of one scope, in the order of paths.
fn scan_scope(scope: &Scope, bounds: Bounds, mode: Mode, diagnostics: &mut Vec<Diagnostic>) -> Vec<Skill> {
    let root = match resolve(&scope.path) {
        Ok(root) => root,
        Err(SkillError::NotFound { missing: Missing::Path, .. }) if scope.kind != ScopeKind::Named => {
            return Vec::new();
        }
        Err(error) => {
            diagnostics.extend(error.into_diagnostics());
            return Vec::new();
        }
    };
    if scope.trust == Trust::Untrusted {
        let message = "the skills of this folder are not loaded, because it is not trusted";
        diagnostics.push(Diagnostic::new(RuleId::ScopeUntrusted, Severity::Warning, message, &scope.path));
        return Vec::new();
    }
    let load = |folder: &Folder| -> Result<Option<Skill>, SkillError> {
        let Some((name, file)) = open_skill_file(&folder.path)? else { return Ok(None) };
        Skill::read(folder.path.clone(), name, &folder.name, file, mode).map(Some)
    };
    let (found, mut findings) = Walk::new(root, bounds, load).run();
    let mut skills = Vec::with_capacity(found.len());
    for (path, outcome) in found {
        match outcome {
            Ok(skill) => skills.push(skill),
            Err(error) => findings.extend(error.into_diagnostics().into_iter().map(|finding| {
                if finding.path().as_os_str().is_empty() { finding.in_file(&path) } else { finding }
            })),
        }
    }
    skills.sort_by(|a, b| a.location().cmp(b.location()));
    findings.sort_by(|a, b| a.path().cmp(b.path()));
    diagnostics.extend(findings);
    skills
}

fn collision(first: &Skill, second: &Skill) -> Diagnostic {
    let message = format!(
        "a skill `{}` was already found at `{}`; this one is not loaded",
        first.name(),
        first.location().display()
    );
    Diagnostic::new(RuleId::NameCollision, Severity::Warning, message, second.location())
}

/// The absolute, resolved path of a folder that must exist.
fn resolve(path: &Path) -> Result<PathBuf, SkillError> {
    let resolved = std::fs::canonicalize(path).map_err(|error| match SkillError::from_io(path, error) {
        SkillError::FileNotFound { path } => SkillError::NotFound { path, missing: Missing::Path },
        other => other,
    })?;
    if resolved.is_dir() {
        Ok(resolved)
    } else {
        Err(SkillError::NotFound { path: path.to_owned(), missing: Missing::Folder })
    }
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

/// A folder that is to be looked at.
#[derive(Debug)]
struct Folder {
    /// Its absolute, resolved path.
    path: PathBuf,
    /// The name under which it was found, which may be that of a link to it.
    name: OsString,
    reached: Reached,
}

/// How a folder was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// It lies in the scope.
    Within,
    /// By a link that leads out of the scope: then it is a skill or nothing, and is not searched.
    ByLinkOut,
}

/// A skill's folder, and the skill or why it cannot be loaded.
type Found<T> = (PathBuf, Result<T, SkillError>);

/// What a folder turned out to be.
enum Seen<T> {
    Skill(PathBuf, Result<T, SkillError>),
    Folders(Vec<Folder>),
    Unreadable(SkillError),
}

/// A walk through one scope.
struct Walk<F> {
    root: PathBuf,
    bounds: Bounds,
    load: F,
}

impl<T: Send, F: Fn(&Folder) -> Result<Option<T>, SkillError> + Sync> Walk<F> {
    const fn new(root: PathBuf, bounds: Bounds, load: F) -> Self {
        Self { root, bounds, load }
    }

    /// All skills with their folders, and what was remarkable on the way.
    fn run(self) -> (Vec<Found<T>>, Vec<Diagnostic>) {
        let name = self.root.file_name().unwrap_or_default().to_owned();
        let mut level = vec![Folder { path: self.root.clone(), name, reached: Reached::Within }];
        let mut visited = HashSet::new();
        let (mut found, mut findings) = (Vec::new(), Vec::new());
        let mut left = self.bounds.directories;
        for depth in 0.. {
            level.retain(|folder| visited.insert(folder.path.clone().into_os_string()));
            if level.is_empty() {
                break;
            }
            let allowed = if depth > self.bounds.depth { 0 } else { left };
            if level.len() > allowed {
                // Said once: what lies deeper is cut off with it.
                if findings.iter().all(|finding: &Diagnostic| finding.rule() != RuleId::ScopeBounds) {
                    findings.push(self.cut_off(&level[allowed].path));
                }
                level.truncate(allowed);
            }
            left -= level.len();
            let mut next = Vec::new();
            for seen in self.look_at(&level) {
                match seen {
                    Seen::Skill(path, outcome) => found.push((path, outcome)),
                    Seen::Folders(folders) => next.extend(folders),
                    Seen::Unreadable(error) => findings.extend(warnings(error)),
                }
            }
            level = next;
        }
        (found, findings)
    }

    /// Looks at all folders of a level; the answers are in their order.
    fn look_at(&self, level: &[Folder]) -> Vec<Seen<T>> {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = cores.min(MAX_THREADS).min(level.len().div_ceil(FOLDERS_PER_THREAD));
        let look = |part: &[Folder]| part.iter().map(|folder| self.look(folder)).collect::<Vec<_>>();
        if threads <= 1 {
            return look(level);
        }
        thread::scope(|scope| {
            let parts = level.chunks(level.len().div_ceil(threads));
            let handles: Vec<_> = parts.map(|part| (part, scope.spawn(move || look(part)))).collect();
            // A thread that panicked has found a defect of ours; its part is looked at again, here, where it shows.
            handles
                .into_iter()
                .flat_map(|(part, handle)| handle.join().unwrap_or_else(|_| look(part)))
                .collect()
        })
    }

    fn look(&self, folder: &Folder) -> Seen<T> {
        match (self.load)(folder) {
            Ok(Some(skill)) => Seen::Skill(folder.path.clone(), Ok(skill)),
            // A folder that cannot be searched cannot be known to be a skill.
            Err(error @ SkillError::PermissionDenied { .. }) if !is_listable(&folder.path) => {
                Seen::Unreadable(error)
            }
            Err(error) => Seen::Skill(folder.path.clone(), Err(error)),
            Ok(None) if folder.reached == Reached::ByLinkOut => Seen::Folders(Vec::new()),
            Ok(None) => match self.folders_in(&folder.path) {
                Ok(folders) => Seen::Folders(folders),
                Err(error) => Seen::Unreadable(error),
            },
        }
    }

    fn folders_in(&self, path: &Path) -> Result<Vec<Folder>, SkillError> {
        let handle = open_folder_direct(path)?;
        let mut folders = Vec::new();
        for entry in entries(&handle, path)? {
            let is_skipped = SKIPPED.iter().any(|skipped| entry.name == *skipped);
            let child = path.join(&entry.name);
            match entry.kind {
                EntryKind::Folder if !is_skipped => {
                    folders.push(Folder { path: child, name: entry.name, reached: Reached::Within });
                }
                EntryKind::Link if !is_skipped => folders.extend(self.by_link(&child, entry.name)),
                _ => {}
            }
        }
        Ok(folders)
    }

    /// The folder that a link leads to, if it does. A circle of links leads nowhere.
    fn by_link(&self, link: &Path, name: OsString) -> Option<Folder> {
        let path = std::fs::canonicalize(link).ok().filter(|path| path.is_dir())?;
        let reached = if path.starts_with(&self.root) { Reached::Within } else { Reached::ByLinkOut };
        Some(Folder { path, name, reached })
    }

    fn cut_off(&self, first: &Path) -> Diagnostic {
        let Bounds { depth, directories } = self.bounds;
        let message = format!(
            "looked no further than {depth} levels and {directories} folders below `{}`: skills from here on may be missing",
            self.root.display()
        );
        Diagnostic::new(RuleId::ScopeBounds, Severity::Warning, message, first)
    }
}

fn is_listable(path: &Path) -> bool {
    open_folder_direct(path).is_ok()
}

/// What could not be looked at while others were.
fn warnings(error: SkillError) -> impl Iterator<Item = Diagnostic> {
    let path = error.path().to_owned();
    let message = error.to_string();
    std::iter::once(Diagnostic::new(RuleId::Unreadable, Severity::Warning, message, path))
}

#[cfg(test)]
mod tests;

//! Reloading skills that people are editing: only what changed is read again, and a broken edit takes nothing away.
//!
//! State: for each skill's folder or package, what the operating system said of it when it was last read (its *stamp*),
//! and the last good version. All of it is a cache: a crash loses nothing, the first reload after it reads everything.
//!
//! What a stamp cannot tell: an edit that leaves size, inode and both times of a file as they were, that is, one within
//! the same tick of the file system's clock as the reading before it. What a change of other files than `SKILL.md`
//! means: nothing for the catalog, since they are read when asked for; it is noticed when the skill's own folder gains
//! or loses an entry, and then `SKILL.md` is read again.
//!
//! The last good version of a folder is its metadata: the instructions and files of a skill are read when they are
//! asked for, as they are at that moment. The last good version of a package is all of it, since it was unpacked.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::discovery::{Bounds, Chosen, Entrance, Scope, enter, findings_at, load_place, ranked};
use crate::error::SkillError;
use crate::frontmatter::Mode;
use crate::name::SkillName;
use crate::skill::{SKILL_FILES, Skill};
use crate::walk::{Place, PlaceKind, Walk};

/// Scopes whose skills are loaded again and again.
#[derive(Debug)]
pub struct Reloader {
    scopes: Vec<Scope>,
    bounds: Bounds,
    mode: Mode,
    /// What is known of each scope, by its number in the order of ranks: of each skill, by the path of its folder or
    /// package.
    known: Vec<HashMap<PathBuf, Known>>,
    catalog: Arc<Catalog>,
}

/// What a reload has found.
#[derive(Debug, Clone)]
pub struct Reload {
    /// The skills as they are now. Snapshots that were taken before stay as they were.
    pub catalog: Arc<Catalog>,
    /// Names that were not in the catalog before, in their order.
    pub added: Vec<SkillName>,
    /// Names whose skill was read again, or is another one now.
    pub changed: Vec<SkillName>,
    /// Names that are in the catalog no more.
    pub removed: Vec<SkillName>,
    /// Names whose skill cannot be loaded any more, and of which the catalog has the last good version.
    pub broken: Vec<SkillName>,
    /// All findings about the skills as they are now, as discovery would report them.
    pub diagnostics: Vec<Diagnostic>,
}

impl Reload {
    /// Whether the catalog is the one before.
    #[must_use]
    pub const fn is_unchanged(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

impl Reloader {
    /// A reloader that has loaded nothing yet.
    #[must_use]
    pub fn new(scopes: impl IntoIterator<Item = Scope>, bounds: Bounds, mode: Mode) -> Self {
        let scopes: Vec<_> = scopes.into_iter().collect();
        let known = scopes.iter().map(|_| HashMap::new()).collect();
        Self { scopes, bounds, mode, known, catalog: Arc::default() }
    }

    /// The catalog of the last reload; empty before the first.
    #[must_use]
    pub const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Looks at all skills, and reads those again that changed since the last time. As in
    /// [`discover`](crate::discover), nothing that is found is an error.
    ///
    /// A skill that was good and is broken now stays in the catalog as it was, and so do the skills beneath a folder that
    /// cannot be listed (not those that links in it lead to, nor those in one that can be listed and not entered). A skill whose `SKILL.md`, folder or package is gone is removed.
    pub fn reload(&mut self) -> Reload {
        let mut diagnostics = Vec::new();
        let mut chosen = Chosen::default();
        let mut broken = HashSet::new();
        let scopes = ranked(&self.scopes);
        for (scope, known) in scopes.into_iter().zip(&mut self.known) {
            match enter(scope, &mut diagnostics) {
                Entrance::Open(root) => {
                    *known = look_again(root, self.bounds, self.mode, known, &mut diagnostics);
                }
                Entrance::Closed => known.clear(),
                Entrance::Unreachable => {}
            }
            let with_skill = known.values().filter_map(|known| Some((known.last_good.clone()?, known)));
            let mut skills: Vec<_> = with_skill.collect();
            skills.sort_by(|(a, _), (b, _)| a.source().cmp(b.source()));
            let failed = skills.iter().filter(|(_, known)| !known.failure.is_empty());
            broken.extend(failed.map(|(skill, _)| Arc::as_ptr(skill)));
            chosen.add(skills.into_iter().map(|(skill, _)| skill).collect(), &mut diagnostics);
        }
        let skills = chosen.skills;
        let broken_names = skills.iter().filter(|skill| broken.contains(&Arc::as_ptr(skill)));
        let mut broken: Vec<_> = broken_names.map(|skill| skill.name().clone()).collect();
        broken.sort();
        self.compare(skills.into_iter().collect(), broken, diagnostics)
    }

    /// Takes the new catalog, and says how it differs from the one before.
    fn compare(&mut self, catalog: Catalog, broken: Vec<SkillName>, diagnostics: Vec<Diagnostic>) -> Reload {
        let before = std::mem::replace(&mut self.catalog, Arc::new(catalog));
        let now = &self.catalog;
        let (mut added, mut changed) = (Vec::new(), Vec::new());
        for skill in now.iter() {
            match before.get(skill.name().as_str()) {
                None => added.push(skill.name().clone()),
                Some(earlier) if !Arc::ptr_eq(earlier, skill) => changed.push(skill.name().clone()),
                Some(_) => {}
            }
        }
        let is_gone = |skill: &&Arc<Skill>| now.get(skill.name().as_str()).is_none();
        let removed = before.iter().filter(is_gone).map(|skill| skill.name().clone()).collect();
        Reload { catalog: Arc::clone(now), added, changed, removed, broken, diagnostics }
    }
}

/// What is known of a skill's folder or package.
#[derive(Debug, Clone)]
struct Known {
    /// The name under which it was found.
    name: OsString,
    /// What it was like just before it was read; none when that could not be told.
    stamp: Option<Stamp>,
    last_good: Option<Arc<Skill>>,
    /// Why it could not be loaded; empty when it was.
    failure: Vec<Diagnostic>,
}

impl Known {
    /// All findings about it that are not its skill's own.
    fn findings(&self) -> impl Iterator<Item = Diagnostic> {
        let kept = self.last_good.as_ref().filter(|_| !self.failure.is_empty()).map(|skill| {
            let message = format!("the last good version of skill `{}` stays loaded", skill.name());
            Diagnostic::new(RuleId::LastGoodKept, Severity::Warning, message, skill.source())
        });
        self.failure.iter().cloned().chain(kept)
    }
}

/// A place as the operating system describes it, without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    /// Of the `SKILL.md` or the package.
    content: FileStamp,
    /// Of the folder; a package has none.
    folder: Option<FileStamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Also changes when the modification time is set back.
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of a place; none when it could not be told, or when it is no skill.
    fn of(place: &Place) -> Option<Self> {
        match place.kind {
            PlaceKind::Package => Some(Self { content: FileStamp::of(&place.path)?, folder: None }),
            PlaceKind::Folder => {
                let content = SKILL_FILES.iter().find_map(|name| FileStamp::of(&place.path.join(name)))?;
                Some(Self { content, folder: Some(FileStamp::of(&place.path)?) })
            }
        }
    }
}

impl FileStamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// What a place is now.
enum Look {
    AsBefore,
    Read(Box<Reading>),
}

/// What came of reading a place.
struct Reading {
    name: OsString,
    stamp: Option<Stamp>,
    outcome: Result<Skill, SkillError>,
}

/// What is known of a scope's skills now.
fn look_again(
    root: Place,
    bounds: Bounds,
    mode: Mode,
    known: &HashMap<PathBuf, Known>,
    diagnostics: &mut Vec<Diagnostic>,
) -> HashMap<PathBuf, Known> {
    let walked = Walk::new(root, bounds, |place: &Place| look(place, mode, known)).run();
    let mut now = HashMap::with_capacity(walked.found.len());
    for (path, look) in walked.found {
        let before = known.get(&path);
        let (name, stamp, outcome) = match (look, before) {
            (Ok(Look::AsBefore), Some(before)) => {
                now.insert(path, before.clone());
                continue;
            }
            // Nothing is as before where nothing was.
            (Ok(Look::AsBefore), None) => continue,
            (Ok(Look::Read(reading)), _) => (reading.name, reading.stamp, reading.outcome),
            (Err(error), _) => (OsString::new(), None, Err(error)),
        };
        let entry = match outcome {
            Ok(skill) => Known { name, stamp, last_good: Some(Arc::new(skill)), failure: Vec::new() },
            Err(error) => Known {
                name,
                stamp,
                last_good: before.and_then(|before| before.last_good.clone()),
                failure: findings_at(error, &path).collect(),
            },
        };
        now.insert(path, entry);
    }
    for (path, before) in known {
        if !now.contains_key(path) && walked.unreadable.iter().any(|folder| path.starts_with(folder)) {
            now.insert(path.clone(), before.clone());
        }
    }
    let mut findings = walked.findings;
    findings.extend(now.values().flat_map(Known::findings));
    findings.sort_by(|a, b| a.path().cmp(b.path()));
    diagnostics.extend(findings);
    now
}

/// Looks at a place, and reads it when it changed. The stamp is taken before: of what changes in between, the next
/// reload finds another stamp.
fn look(place: &Place, mode: Mode, known: &HashMap<PathBuf, Known>) -> Result<Option<Look>, SkillError> {
    let stamp = Stamp::of(place);
    let is_as_before =
        |known: &Known| known.stamp.is_some() && known.stamp == stamp && known.name == place.name;
    if known.get(&place.path).is_some_and(is_as_before) {
        return Ok(Some(Look::AsBefore));
    }
    let outcome = match load_place(place, mode).transpose() {
        None => return Ok(None),
        // Whether the place can be looked into is for the walk to find out.
        Some(Err(error @ SkillError::PermissionDenied { .. })) => return Err(error),
        Some(outcome) => outcome,
    };
    // A failure of the machine is not the skill's, and may pass with nothing changed: it is looked at again.
    let is_passing = matches!(outcome, Err(SkillError::Io { .. } | SkillError::Write { .. }));
    let stamp = stamp.filter(|_| !is_passing);
    Ok(Some(Look::Read(Box::new(Reading { name: place.name.clone(), stamp, outcome }))))
}

#[cfg(test)]
mod tests;

//! Reloading skills that people are editing: only what changed is read again, and a broken edit takes nothing away.
//!
//! Only a proven removal removes a skill: see `removal`.
//!
//! State: for each skill's folder or package, what the operating system said of it when it was last read (its *stamp*),
//! and the last good version. All of it is a cache: a crash loses nothing, the first reload after it reads everything.
//!
//! What a stamp cannot tell: an edit that leaves size, inode and both times of a file as they were, that is, one within
//! the same tick of the file system's clock as the reading before it. What a change of other files than `SKILL.md` and
//! the manifest beside it means: nothing for the catalog, since they are read when asked for; it is noticed when the
//! skill's own folder gains or loses an entry, and then `SKILL.md` is read again.
//!
//! The last good version of a folder is its metadata: the instructions and files of a skill are read when they are
//! asked for, as they are at that moment. The last good version of a package is all of it, since it was unpacked.

mod removal;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::discovery::{Bounds, Chosen, Entrance, Scope, enter, findings_at, load_folder, ranked};
use crate::error::SkillError;
use crate::frontmatter::Mode;
use crate::manifest::SIDECAR_FILE;
use crate::name::SkillName;
use crate::package::{Budget, load_package_within};
use crate::reload::removal::{Doubt, is_gone};
use crate::skill::{SKILL_FILES, Skill};
use crate::walk::{Place, PlaceKind, Walk, Walked};

/// Scopes whose skills are loaded again and again.
#[derive(Debug)]
pub struct Reloader {
    scopes: Vec<Scope>,
    bounds: Bounds,
    mode: Mode,
    /// What is known of each scope, by its number in the order of ranks.
    known: Vec<Memory>,
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
    /// Names whose skill cannot be loaded or seen any more, and of which the catalog has the last good version. Each is
    /// also a finding of the rule [`LastGoodKept`](RuleId::LastGoodKept).
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
        let known = scopes.iter().map(|_| Memory::default()).collect();
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
    /// A skill that was good and is broken now stays in the catalog as it was. So does one that cannot be seen any more:
    /// beneath a folder that cannot be listed or searched, behind a link that cannot be followed, or beyond the bounds,
    /// also when it lies elsewhere and only a link there led to it. A skill is removed when that is proven: its
    /// `SKILL.md` or package is not there, or every folder and link by which it was reached was looked at and leads to
    /// it no more.
    pub fn reload(&mut self) -> Reload {
        let mut diagnostics = Vec::new();
        let mut chosen = Chosen::default();
        let mut broken = HashSet::new();
        let mut budget = Budget::new(self.bounds.package_bytes);
        budget.occupy(self.known.iter().map(Memory::unpacked_bytes).sum());
        let scopes = ranked(&self.scopes);
        for (scope, memory) in scopes.into_iter().zip(&mut self.known) {
            match enter(scope, &mut diagnostics) {
                Entrance::Open(root) => {
                    memory.look_again(root, self.bounds, self.mode, &mut budget, &mut diagnostics);
                }
                Entrance::Closed => {
                    budget.give_back(memory.unpacked_bytes());
                    *memory = Memory::default();
                }
                Entrance::Unreachable => memory.lose_sight(&mut budget, &mut diagnostics),
            }
            let with_skill = memory.skills.values();
            let with_skill = with_skill.filter_map(|known| Some((known.last_good.clone()?, known)));
            let mut skills: Vec<_> = with_skill.collect();
            skills.sort_by(|(a, _), (b, _)| a.source().cmp(b.source()));
            let kept = skills.iter().filter(|(_, known)| known.is_only_kept());
            broken.extend(kept.map(|(skill, _)| Arc::as_ptr(skill)));
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

/// What is known of a scope.
#[derive(Debug, Default)]
struct Memory {
    /// Of each skill, by the path of its folder or package.
    skills: HashMap<PathBuf, Known>,
    /// The links that were followed, and where they led.
    links: HashMap<PathBuf, PathBuf>,
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
    sight: Sight,
}

/// Whether the last walk came upon a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Seen,
    /// Nobody can say whether it is still there.
    Lost,
}

impl Known {
    /// Whether it is loaded only because it was before.
    fn is_only_kept(&self) -> bool {
        !self.failure.is_empty() || self.sight == Sight::Lost
    }

    /// All findings about it that are not its skill's own.
    fn findings(&self) -> impl Iterator<Item = Diagnostic> {
        let kept = self.last_good.as_ref().filter(|_| self.is_only_kept()).map(|skill| {
            let message = match self.sight {
                Sight::Seen => format!("the last good version of skill `{}` stays loaded", skill.name()),
                Sight::Lost => format!(
                    "it cannot be told whether skill `{}` is still there; its last good version stays loaded",
                    skill.name()
                ),
            };
            Diagnostic::new(RuleId::LastGoodKept, Severity::Warning, message, skill.source())
        });
        let failure = self.failure.iter().filter(|_| self.sight == Sight::Seen);
        failure.cloned().chain(kept)
    }

    /// The same, when nobody can see it any more; none when it is proven gone, or never was good.
    fn out_of_sight(&self) -> Option<Self> {
        let skill = self.last_good.as_ref()?;
        (!is_gone(skill)).then(|| Self { sight: Sight::Lost, ..self.clone() })
    }

    fn unpacked_bytes(&self) -> u64 {
        self.last_good.as_ref().map_or(0, |skill| skill.unpacked_bytes())
    }
}

/// A place as the operating system describes it, without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    /// Of the `SKILL.md` or the package.
    content: FileStamp,
    /// Of the manifest beside the `SKILL.md`, if there is one.
    manifest: Option<FileStamp>,
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
            PlaceKind::Package => {
                Some(Self { content: FileStamp::of(&place.path)?, manifest: None, folder: None })
            }
            PlaceKind::Folder => {
                let content = SKILL_FILES.iter().find_map(|name| FileStamp::of(&place.path.join(name)))?;
                let manifest = FileStamp::of(&place.path.join(SIDECAR_FILE));
                Some(Self { content, manifest, folder: Some(FileStamp::of(&place.path)?) })
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
    /// A package that is not as before, with its name and stamp. Packages are unpacked later, one by one.
    Package(OsString, Option<Stamp>),
}

/// What came of reading a place.
struct Reading {
    name: OsString,
    stamp: Option<Stamp>,
    outcome: Result<Skill, SkillError>,
}

impl Memory {
    fn unpacked_bytes(&self) -> u64 {
        self.skills.values().map(Known::unpacked_bytes).sum()
    }

    /// Takes in that the scope cannot be entered.
    fn lose_sight(&mut self, budget: &mut Budget, diagnostics: &mut Vec<Diagnostic>) {
        let before = self.unpacked_bytes();
        let kept = self.skills.drain().filter_map(|(path, known)| Some((path, known.out_of_sight()?)));
        self.skills = kept.collect();
        budget.give_back(before - self.unpacked_bytes());
        self.report(Vec::new(), diagnostics);
    }

    /// Takes in what is in the scope now.
    fn look_again(
        &mut self,
        root: Place,
        bounds: Bounds,
        mode: Mode,
        budget: &mut Budget,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let mut before = std::mem::take(&mut self.skills);
        let walk = Walk::new(root, bounds, |place: &Place| look(place, mode, &before));
        let Walked { mut found, findings, visited, uncertain, links } = walk.run();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));

        let seen: HashSet<&Path> = found.iter().map(|(path, _)| &**path).collect();
        let doubt = Doubt::of(visited, uncertain, &self.links);
        let missing: Vec<PathBuf> = before.keys().filter(|path| !seen.contains(&***path)).cloned().collect();
        for path in missing {
            let Some(known) = before.remove(&path) else { continue };
            match known.out_of_sight().filter(|_| doubt.covers(&path)) {
                Some(kept) => drop(self.skills.insert(path, kept)),
                None => budget.give_back(known.unpacked_bytes()),
            }
        }
        self.links.retain(|link, _| doubt.covers(link));
        self.links.extend(links);

        for (path, look) in found {
            let known = before.remove(&path);
            if let Some(known) = Known::now(&path, look, known, mode, budget) {
                self.skills.insert(path, known);
            }
        }
        self.report(findings, diagnostics);
    }

    /// Reports what was found on the way, and what is known of the skills.
    fn report(&self, mut findings: Vec<Diagnostic>, diagnostics: &mut Vec<Diagnostic>) {
        findings.extend(self.skills.values().flat_map(Known::findings));
        findings.sort_by(|a, b| a.path().cmp(b.path()));
        diagnostics.extend(findings);
    }
}

impl Known {
    /// What is known of a place after a look at it; none of one that was as before when nothing was.
    fn now(
        path: &Path,
        look: Result<Look, SkillError>,
        before: Option<Self>,
        mode: Mode,
        budget: &mut Budget,
    ) -> Option<Self> {
        let (name, stamp, outcome) = match look {
            Ok(Look::AsBefore) => return before.map(|known| Self { sight: Sight::Seen, ..known }),
            Ok(Look::Read(reading)) => (reading.name, reading.stamp, reading.outcome),
            Ok(Look::Package(name, stamp)) => {
                // The room of the version before is free when this one takes its place.
                let occupied = before.as_ref().map_or(0, Self::unpacked_bytes);
                budget.give_back(occupied);
                let outcome = load_package_within(path, mode, budget);
                if outcome.is_err() {
                    budget.occupy(occupied);
                }
                (name, stamp.filter(|_| !may_pass(&outcome)), outcome)
            }
            Err(error) => (OsString::new(), None, Err(error)),
        };
        Some(match outcome {
            Ok(skill) => Self {
                name,
                stamp,
                last_good: Some(Arc::new(skill)),
                failure: Vec::new(),
                sight: Sight::Seen,
            },
            Err(error) => Self {
                name,
                stamp,
                last_good: before.and_then(|before| before.last_good),
                failure: findings_at(error, path).collect(),
                sight: Sight::Seen,
            },
        })
    }
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
    if place.kind == PlaceKind::Package {
        return Ok(Some(Look::Package(place.name.clone(), stamp)));
    }
    let outcome = match load_folder(place, mode).transpose() {
        None => return Ok(None),
        // What the machine failed at is for the walk to weigh: whether this is a skill is not known.
        Some(Err(error @ (SkillError::PermissionDenied { .. } | SkillError::Io { .. }))) => {
            return Err(error);
        }
        Some(outcome) => outcome,
    };
    let stamp = stamp.filter(|_| !may_pass(&outcome));
    Ok(Some(Look::Read(Box::new(Reading { name: place.name.clone(), stamp, outcome }))))
}

/// Whether a failure is the machine's and not the skill's: it may pass with nothing changed, so it is looked at again.
const fn may_pass(outcome: &Result<Skill, SkillError>) -> bool {
    matches!(
        outcome,
        Err(SkillError::Io { .. }
            | SkillError::Write { .. }
            | SkillError::PermissionDenied { .. }
            | SkillError::PackageBudget { .. })
    )
}

#[cfg(test)]
mod tests;

//! Walking through one scope.
//!
//! Breadth first, level by level, so that what a bound cuts off is the deepest; the places of a level are looked at by a
//! few threads. The outcome does not depend on the threads.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::io::Errno;

use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::discovery::{Bounds, Links};
use crate::error::{Missing, SkillError, with_source};
use crate::files::{EntryKind, entries, open_folder_direct};
use crate::package::is_package_name;
use crate::skill::SKILL_FILES;

/// Folders that are never looked into.
const SKIPPED: [&str; 2] = [".git", "node_modules"];

/// With fewer places than this a thread costs more than it saves.
const PLACES_PER_THREAD: usize = 64;
const MAX_THREADS: usize = 8;

/// A folder or package that is to be looked at.
#[derive(Debug)]
pub(crate) struct Place {
    /// Its absolute, resolved path.
    pub(crate) path: PathBuf,
    /// The name under which it was found, which may be that of a link to it.
    pub(crate) name: OsString,
    pub(crate) kind: PlaceKind,
    reached: Reached,
}

/// What a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    Folder,
    /// A file whose name ends in `.skill`.
    Package,
}

/// How a place was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// It lies in the scope.
    Within,
    /// By a link that leads out of the scope: then it is a skill or nothing, and is not searched.
    ByLinkOut,
}

/// What a walk has found.
pub(crate) struct Walked<T> {
    /// The path of each skill's folder or package, and the skill or why it cannot be loaded.
    pub(crate) found: Vec<(PathBuf, Result<T, SkillError>)>,
    /// What was remarkable on the way.
    pub(crate) findings: Vec<Diagnostic>,
    /// All folders and packages that were come upon, by their resolved path.
    pub(crate) visited: HashSet<OsString>,
    /// Folders that could not be looked into, links of which nobody can say where they lead, and what the bounds cut
    /// off: what is beneath is not known.
    pub(crate) uncertain: HashSet<PathBuf>,
    /// The links that were followed, by their path, and the resolved path that they lead to.
    pub(crate) links: HashMap<PathBuf, PathBuf>,
}

/// What a place turned out to be.
enum Seen<T> {
    Skill(PathBuf, Result<T, SkillError>),
    Group(Listing),
    Unreadable(PathBuf, SkillError),
}

/// What lies in a folder.
#[derive(Default)]
struct Listing {
    places: Vec<Place>,
    links: Vec<(PathBuf, PathBuf)>,
    /// Links of which nobody can say where they lead.
    lost: Vec<(PathBuf, SkillError)>,
    /// Links that lead out of the scope, and are not followed.
    refused: Vec<PathBuf>,
}

/// A walk through one scope.
pub(crate) struct Walk<F> {
    root: Place,
    bounds: Bounds,
    load: F,
}

impl<T: Send, F: Fn(&Place) -> Result<Option<T>, SkillError> + Sync> Walk<F> {
    /// A walk from a place that [was resolved](resolve). `load` says which skill a place is, if it is one.
    pub(crate) const fn new(root: Place, bounds: Bounds, load: F) -> Self {
        Self { root, bounds, load }
    }

    /// Walks as far as the bounds allow.
    pub(crate) fn run(self) -> Walked<T> {
        let root = &self.root;
        let mut level = vec![Place {
            path: root.path.clone(),
            name: root.name.clone(),
            kind: root.kind,
            reached: Reached::Within,
        }];
        let mut visited = HashSet::new();
        let (mut found, mut findings) = (Vec::new(), Vec::new());
        let (mut uncertain, mut links) = (HashSet::new(), HashMap::new());
        let mut left = self.bounds.directories;
        for depth in 0.. {
            level.retain(|place| visited.insert(place.path.clone().into_os_string()));
            if level.is_empty() {
                break;
            }
            let allowed = if depth > self.bounds.depth { 0 } else { left };
            if level.len() > allowed {
                // Said once: what lies deeper is cut off with it.
                if findings.iter().all(|finding: &Diagnostic| finding.rule() != RuleId::ScopeBounds) {
                    findings.push(self.cut_off(&level[allowed].path));
                }
                uncertain.extend(level.drain(allowed..).map(|place| place.path));
            }
            left -= level.len();
            let mut next = Vec::new();
            for seen in self.look_at(&level) {
                match seen {
                    Seen::Skill(path, outcome) => {
                        // The machine failed, so whether this is a skill, and not a folder of skills, is not known.
                        if matches!(outcome, Err(SkillError::Io { .. })) {
                            uncertain.insert(path.clone());
                        }
                        found.push((path, outcome));
                    }
                    Seen::Group(listing) => {
                        next.extend(listing.places);
                        links.extend(listing.links);
                        findings.extend(listing.refused.iter().map(|link| self.leads_out(link)));
                        for (link, error) in listing.lost {
                            // A circle of links leads nowhere, and is nothing to warn of.
                            if !is_circle(&error) {
                                findings.push(warning(&error));
                            }
                            uncertain.insert(link);
                        }
                    }
                    Seen::Unreadable(path, error) => {
                        findings.push(warning(&error));
                        uncertain.insert(path);
                    }
                }
            }
            level = next;
        }
        Walked { found, findings, visited, uncertain, links }
    }

    /// Looks at all places of a level; the answers are in their order.
    fn look_at(&self, level: &[Place]) -> Vec<Seen<T>> {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = cores.min(MAX_THREADS).min(level.len().div_ceil(PLACES_PER_THREAD));
        let look = |part: &[Place]| part.iter().map(|place| self.look(place)).collect::<Vec<_>>();
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

    fn look(&self, place: &Place) -> Seen<T> {
        let path = place.path.clone();
        match ((self.load)(place), place.kind) {
            (Ok(Some(skill)), _) => Seen::Skill(path, Ok(skill)),
            // A folder that cannot be searched cannot be known to be a skill: it may be one of skills.
            (Err(SkillError::PermissionDenied { .. }), PlaceKind::Folder) if !is_searchable(&path) => {
                Seen::Unreadable(path.clone(), SkillError::PermissionDenied { path })
            }
            (Err(error), _) => Seen::Skill(path, Err(error)),
            (Ok(None), PlaceKind::Package) => Seen::Group(Listing::default()),
            (Ok(None), PlaceKind::Folder) if place.reached == Reached::ByLinkOut => {
                Seen::Group(Listing::default())
            }
            (Ok(None), PlaceKind::Folder) => match self.list(&path) {
                Ok(listing) => Seen::Group(listing),
                Err(error) => Seen::Unreadable(path, error),
            },
        }
    }

    fn list(&self, path: &Path) -> Result<Listing, SkillError> {
        let handle = open_folder_direct(path)?;
        let mut listing = Listing::default();
        for entry in entries(&handle, path)? {
            if SKIPPED.iter().any(|skipped| entry.name == *skipped) {
                continue;
            }
            let child = path.join(&entry.name);
            let kind = match entry.kind {
                EntryKind::Folder => PlaceKind::Folder,
                EntryKind::File if is_package_name(&entry.name) => PlaceKind::Package,
                EntryKind::Link => {
                    match self.by_link(&child, entry.name) {
                        Ok(Some(place)) if self.refuses(&place) => listing.refused.push(child),
                        Ok(Some(place)) => {
                            listing.links.push((child, place.path.clone()));
                            listing.places.push(place);
                        }
                        // It leads nowhere, or to what is neither a folder nor a package.
                        Ok(None) | Err(SkillError::FileNotFound { .. }) => {}
                        Err(error) => listing.lost.push((child, error)),
                    }
                    continue;
                }
                EntryKind::File | EntryKind::Other => continue,
            };
            listing.places.push(Place { path: child, name: entry.name, kind, reached: Reached::Within });
        }
        Ok(listing)
    }

    /// The place that a link leads to, if it does.
    fn by_link(&self, link: &Path, name: OsString) -> Result<Option<Place>, SkillError> {
        let failed = |error| SkillError::from_io(link, error);
        let path = std::fs::canonicalize(link).map_err(failed)?;
        let Some(kind) = kind_of(&path, is_package_name(&name)).map_err(failed)? else { return Ok(None) };
        let reached = if path.starts_with(&self.root.path) { Reached::Within } else { Reached::ByLinkOut };
        Ok(Some(Place { path, name, kind, reached }))
    }

    fn refuses(&self, place: &Place) -> bool {
        place.reached == Reached::ByLinkOut && self.bounds.links == Links::WithinScope
    }

    fn leads_out(&self, link: &Path) -> Diagnostic {
        let message = format!(
            "the link leads out of `{}`, and is not followed: copy the skill to here, or add the folder that it lies in",
            self.root.path.display()
        );
        Diagnostic::new(RuleId::ScopeLink, Severity::Warning, message, link)
    }

    fn cut_off(&self, first: &Path) -> Diagnostic {
        let Bounds { depth, directories, .. } = self.bounds;
        let message = format!(
            "looked no further than {depth} levels and {directories} folders below `{}`: skills from here on may be missing",
            self.root.path.display()
        );
        Diagnostic::new(RuleId::ScopeBounds, Severity::Warning, message, first)
    }
}

/// Where a walk begins: a folder that must exist, or a package.
pub(crate) fn resolve(path: &Path) -> Result<Place, SkillError> {
    let resolved = std::fs::canonicalize(path).map_err(|error| match SkillError::from_io(path, error) {
        SkillError::FileNotFound { path } => SkillError::NotFound { path, missing: Missing::Path },
        other => other,
    })?;
    let is_package = path.file_name().is_some_and(is_package_name);
    let kind = kind_of(&resolved, is_package).map_err(|error| SkillError::from_io(path, error))?;
    let Some(kind) = kind else {
        return Err(SkillError::NotFound { path: path.to_owned(), missing: Missing::Folder });
    };
    let name = resolved.file_name().unwrap_or_default().to_owned();
    Ok(Place { path: resolved, name, kind, reached: Reached::Within })
}

fn kind_of(resolved: &Path, is_package: bool) -> std::io::Result<Option<PlaceKind>> {
    let metadata = std::fs::metadata(resolved)?;
    if metadata.is_dir() {
        return Ok(Some(PlaceKind::Folder));
    }
    Ok((metadata.is_file() && is_package).then_some(PlaceKind::Package))
}

/// Whether it can be told of any name in a folder whether it is there.
fn is_searchable(folder: &Path) -> bool {
    let looked = std::fs::symlink_metadata(folder.join(SKILL_FILES[0]));
    looked.map_or_else(|error| error.kind() == std::io::ErrorKind::NotFound, |_| true)
}

fn is_circle(error: &SkillError) -> bool {
    matches!(error, SkillError::Io { source, .. } if source.raw_os_error() == Some(Errno::LOOP.raw_os_error()))
}

/// What could not be looked at while others were.
fn warning(error: &SkillError) -> Diagnostic {
    Diagnostic::new(RuleId::Unreadable, Severity::Warning, with_source(error), error.path())
}

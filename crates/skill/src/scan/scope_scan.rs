//! Scans one scope.
//!
//! The scan is breadth first, level by level, so the limits cut off the deepest directories. Several threads inspect
//! the candidates of a level. The result does not depend on the threads.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::io::Errno;

use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::error::{Missing, SkillError, with_source};
use crate::package::is_package_name;
use crate::scan::dir_handle::{EntryKind, entries, open_dir_direct};
use crate::skill::SKILL_FILES;

/// The limits of discovery, for each scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DiscoveryLimits {
    /// The maximum depth below the scope's directory.
    pub depth: usize,
    /// The maximum number of directories and packages, including the skills' own directories.
    pub directories: usize,
    /// The maximum disk space of all unpacked packages together, in bytes. Each file uses blocks of 4 KiB, each
    /// directory one block. In a reload, packages that stay loaded count first.
    pub package_bytes: u64,
    /// Where links may lead.
    pub links: LinkPolicy,
}

impl Default for DiscoveryLimits {
    /// 6 levels, 2000 directories, 500 MB of packages, links to any target.
    fn default() -> Self {
        Self { depth: 6, directories: 2000, package_bytes: 500_000_000, links: LinkPolicy::Anywhere }
    }
}

/// The allowed targets of links in a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LinkPolicy {
    /// Any target. For directories in which no untrusted user can create links.
    #[default]
    Anywhere,
    /// Targets in the scope. Other links are not followed, and are reported.
    WithinScope,
}

/// Directories that are never searched.
const SKIPPED: [&str; 2] = [".git", "node_modules"];

/// With fewer candidates than this, a thread costs more than it saves.
const CANDIDATES_PER_THREAD: usize = 64;
const MAX_THREADS: usize = 8;

/// A directory or package to inspect.
#[derive(Debug)]
pub(crate) struct SkillCandidate {
    /// Its absolute, resolved path.
    pub(crate) path: PathBuf,
    /// The name under which it was found. It may be the name of a link.
    pub(crate) name: OsString,
    pub(crate) kind: CandidateKind,
    reached_by: ReachedBy,
}

/// The kind of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CandidateKind {
    Dir,
    /// A file whose name ends in `.skill`.
    Package,
}

/// How a candidate was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReachedBy {
    /// It lies within the scope.
    Within,
    /// By a link out of the scope. It may be a skill, but it is not searched.
    LinkOutsideScope,
}

/// The result of a scan.
pub(crate) struct ScanResult<T> {
    /// The path of each skill's directory or package, with the skill or the error.
    pub(crate) found: Vec<(PathBuf, Result<T, SkillError>)>,
    /// Findings of the scan.
    pub(crate) findings: Vec<Diagnostic>,
    /// The resolved paths of all directories and packages that were found.
    pub(crate) visited: HashSet<OsString>,
    /// Directories that could not be read, links whose target is unknown, and what the limits cut off. What is beneath
    /// them is unknown.
    pub(crate) unverified: HashSet<PathBuf>,
    /// The links that were followed, with their resolved targets.
    pub(crate) links: HashMap<PathBuf, PathBuf>,
}

/// The result of inspecting a candidate.
enum Inspection<T> {
    Skill(PathBuf, Result<T, SkillError>),
    Group(DirListing),
    Unreadable(PathBuf, SkillError),
}

/// The contents of a directory.
#[derive(Default)]
struct DirListing {
    candidates: Vec<SkillCandidate>,
    links: Vec<(PathBuf, PathBuf)>,
    /// Links whose target is unknown.
    unresolved_links: Vec<(PathBuf, SkillError)>,
    /// Links out of the scope, which are not followed.
    refused: Vec<PathBuf>,
}

/// Scans one scope.
pub(crate) struct ScopeScanner<F> {
    root: SkillCandidate,
    limits: DiscoveryLimits,
    load: F,
}

impl<T: Send, F: Fn(&SkillCandidate) -> Result<Option<T>, SkillError> + Sync> ScopeScanner<F> {
    /// Creates a scanner. The root was [resolved](resolve). `load` returns the skill of a candidate, if it is a
    /// skill.
    pub(crate) const fn new(root: SkillCandidate, bounds: DiscoveryLimits, load: F) -> Self {
        Self { root, limits: bounds, load }
    }

    /// Scans as far as the limits allow.
    pub(crate) fn run(self) -> ScanResult<T> {
        let root = &self.root;
        let mut level = vec![SkillCandidate {
            path: root.path.clone(),
            name: root.name.clone(),
            kind: root.kind,
            reached_by: ReachedBy::Within,
        }];
        let mut visited = HashSet::new();
        let (mut found, mut findings) = (Vec::new(), Vec::new());
        let (mut unverified, mut links) = (HashSet::new(), HashMap::new());
        let mut remaining = self.limits.directories;
        for depth in 0.. {
            level.retain(|candidate| visited.insert(candidate.path.clone().into_os_string()));
            if level.is_empty() {
                break;
            }
            let allowed = if depth > self.limits.depth { 0 } else { remaining };
            if level.len() > allowed {
                // Reported once. It includes what lies deeper.
                if findings.iter().all(|finding: &Diagnostic| finding.rule() != RuleId::ScopeBounds) {
                    findings.push(self.limits_reached(&level[allowed].path));
                }
                unverified.extend(level.drain(allowed..).map(|candidate| candidate.path));
            }
            remaining -= level.len();
            let mut next = Vec::new();
            for inspection in self.inspect_level(&level) {
                match inspection {
                    Inspection::Skill(path, outcome) => {
                        // A system error: it is unknown whether this is a skill or a directory of skills.
                        if matches!(outcome, Err(SkillError::Io { .. })) {
                            unverified.insert(path.clone());
                        }
                        found.push((path, outcome));
                    }
                    Inspection::Group(listing) => {
                        next.extend(listing.candidates);
                        links.extend(listing.links);
                        findings.extend(listing.refused.iter().map(|link| self.link_outside_scope(link)));
                        for (link, error) in listing.unresolved_links {
                            // A cycle of links has no target, and needs no warning.
                            if !is_link_loop(&error) {
                                findings.push(warning(&error));
                            }
                            unverified.insert(link);
                        }
                    }
                    Inspection::Unreadable(path, error) => {
                        findings.push(warning(&error));
                        unverified.insert(path);
                    }
                }
            }
            level = next;
        }
        ScanResult { found, findings, visited, unverified, links }
    }

    /// Inspects all candidates of a level. The results are in their order.
    fn inspect_level(&self, level: &[SkillCandidate]) -> Vec<Inspection<T>> {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = cores.min(MAX_THREADS).min(level.len().div_ceil(CANDIDATES_PER_THREAD));
        let inspect = |part: &[SkillCandidate]| {
            part.iter().map(|candidate| self.inspect(candidate)).collect::<Vec<_>>()
        };
        if threads <= 1 {
            return inspect(level);
        }
        thread::scope(|scope| {
            let parts = level.chunks(level.len().div_ceil(threads));
            let handles: Vec<_> = parts.map(|part| (part, scope.spawn(move || inspect(part)))).collect();
            // A thread panics only because of a bug. Its part is inspected again here, so that the panic is
            // visible.
            handles
                .into_iter()
                .flat_map(|(part, handle)| handle.join().unwrap_or_else(|_| inspect(part)))
                .collect()
        })
    }

    fn inspect(&self, candidate: &SkillCandidate) -> Inspection<T> {
        let path = candidate.path.clone();
        match ((self.load)(candidate), candidate.kind) {
            (Ok(Some(skill)), _) => Inspection::Skill(path, Ok(skill)),
            // A directory that cannot be searched may be a skill, or a directory of skills.
            (Err(SkillError::PermissionDenied { .. }), CandidateKind::Dir) if !is_searchable(&path) => {
                Inspection::Unreadable(path.clone(), SkillError::PermissionDenied { path })
            }
            (Err(error), _) => Inspection::Skill(path, Err(error)),
            (Ok(None), CandidateKind::Package) => Inspection::Group(DirListing::default()),
            (Ok(None), CandidateKind::Dir) if candidate.reached_by == ReachedBy::LinkOutsideScope => {
                Inspection::Group(DirListing::default())
            }
            (Ok(None), CandidateKind::Dir) => match self.list(&path) {
                Ok(listing) => Inspection::Group(listing),
                Err(error) => Inspection::Unreadable(path, error),
            },
        }
    }

    fn list(&self, path: &Path) -> Result<DirListing, SkillError> {
        let handle = open_dir_direct(path)?;
        let mut listing = DirListing::default();
        for entry in entries(&handle, path)? {
            if SKIPPED.iter().any(|skipped| entry.name == *skipped) {
                continue;
            }
            let child = path.join(&entry.name);
            let kind = match entry.kind {
                EntryKind::Dir => CandidateKind::Dir,
                EntryKind::File if is_package_name(&entry.name) => CandidateKind::Package,
                EntryKind::Link => {
                    match self.follow_link(&child, entry.name) {
                        Ok(Some(candidate)) if self.refuses(&candidate) => listing.refused.push(child),
                        Ok(Some(candidate)) => {
                            listing.links.push((child, candidate.path.clone()));
                            listing.candidates.push(candidate);
                        }
                        // It leads nowhere, or to something that is neither a directory nor a package.
                        Ok(None) | Err(SkillError::FileNotFound { .. }) => {}
                        Err(error) => listing.unresolved_links.push((child, error)),
                    }
                    continue;
                }
                EntryKind::File | EntryKind::Other => continue,
            };
            listing.candidates.push(SkillCandidate {
                path: child,
                name: entry.name,
                kind,
                reached_by: ReachedBy::Within,
            });
        }
        Ok(listing)
    }

    /// Returns the candidate that a link leads to, if any.
    fn follow_link(&self, link: &Path, name: OsString) -> Result<Option<SkillCandidate>, SkillError> {
        let failed = |error| SkillError::from_io(link, error);
        let path = std::fs::canonicalize(link).map_err(failed)?;
        let Some(kind) = kind_of(&path, is_package_name(&name)).map_err(failed)? else { return Ok(None) };
        let reached =
            if path.starts_with(&self.root.path) { ReachedBy::Within } else { ReachedBy::LinkOutsideScope };
        Ok(Some(SkillCandidate { path, name, kind, reached_by: reached }))
    }

    fn refuses(&self, candidate: &SkillCandidate) -> bool {
        candidate.reached_by == ReachedBy::LinkOutsideScope && self.limits.links == LinkPolicy::WithinScope
    }

    fn link_outside_scope(&self, link: &Path) -> Diagnostic {
        let message = format!(
            "the link leads out of `{}` and is not followed: copy the skill here, or add the directory that contains it",
            self.root.path.display()
        );
        Diagnostic::new(RuleId::ScopeLink, Severity::Warning, message, link)
    }

    fn limits_reached(&self, first: &Path) -> Diagnostic {
        let DiscoveryLimits { depth, directories, .. } = self.limits;
        let message = format!(
            "searched only {depth} levels and {directories} directories below `{}`: skills beyond that may be missing",
            self.root.path.display()
        );
        Diagnostic::new(RuleId::ScopeBounds, Severity::Warning, message, first)
    }
}

/// Resolves the root of a scan: an existing directory or package.
pub(crate) fn resolve(path: &Path) -> Result<SkillCandidate, SkillError> {
    let resolved = std::fs::canonicalize(path).map_err(|error| match SkillError::from_io(path, error) {
        SkillError::FileNotFound { path } => SkillError::NotFound { path, missing: Missing::Path },
        other => other,
    })?;
    let is_package = path.file_name().is_some_and(is_package_name);
    let kind = kind_of(&resolved, is_package).map_err(|error| SkillError::from_io(path, error))?;
    let Some(kind) = kind else {
        return Err(SkillError::NotFound { path: path.to_owned(), missing: Missing::Dir });
    };
    let name = resolved.file_name().unwrap_or_default().to_owned();
    Ok(SkillCandidate { path: resolved, name, kind, reached_by: ReachedBy::Within })
}

fn kind_of(resolved: &Path, is_package: bool) -> std::io::Result<Option<CandidateKind>> {
    let metadata = std::fs::metadata(resolved)?;
    if metadata.is_dir() {
        return Ok(Some(CandidateKind::Dir));
    }
    Ok((metadata.is_file() && is_package).then_some(CandidateKind::Package))
}

/// Whether the process may look up names in the directory.
fn is_searchable(dir: &Path) -> bool {
    let main_file = std::fs::symlink_metadata(dir.join(SKILL_FILES[0]));
    main_file.map_or_else(|error| error.kind() == std::io::ErrorKind::NotFound, |_| true)
}

fn is_link_loop(error: &SkillError) -> bool {
    matches!(error, SkillError::Io { source, .. } if source.raw_os_error() == Some(Errno::LOOP.raw_os_error()))
}

/// The warning about a candidate that could not be inspected.
fn warning(error: &SkillError) -> Diagnostic {
    Diagnostic::new(RuleId::Unreadable, Severity::Warning, with_source(error), error.path())
}

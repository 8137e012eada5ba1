//! Loads the skills of scopes once, or repeatedly while people edit them. A reload reads only changed skills again, and a
//! broken edit removes nothing.
//!
//! A skill is removed only when its removal is proven: see `removal`.
//!
//! State: for each skill's directory or package, the file metadata when it was last read (its *fingerprint*), and the
//! last good version. All of it is a cache. After a crash, the first reload reads everything.
//!
//! A fingerprint misses an edit that leaves size, inode and both times of a file unchanged. Such an edit happens
//! within the same tick of the file system's clock as the last read. Files other than `SKILL.md` and the manifest
//! beside it do not matter for the catalog, since they are read on demand. When the skill's own directory gains or
//! loses an entry, `SKILL.md` is read again.
//!
//! The last good version of a directory is its metadata: instructions and files are read on demand, as they are then.
//! The last good version of a package is complete, since it was unpacked.

mod removal;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_base::FileFingerprint;

use crate::catalog::Catalog;
use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::discovery::{
    Discovery, RankedSkills, Scope, ScopeAccess, by_rank, findings_at, load_dir, open_scope,
};
use crate::error::SkillError;
use crate::fields::name::SkillName;
use crate::frontmatter::Mode;
use crate::manifest::SIDECAR_FILE;
use crate::package::{DiskBudget, load_package_within};
use crate::reload::removal::{UnverifiedPaths, is_removed};
use crate::scan::scope_scan::{
    CandidateKind, DiscoveryLimits, ScanResult, ScopeScanner, SkillCandidate, resolve,
};
use crate::skill::{SKILL_FILES, Skill};

/// Scopes whose skills are loaded repeatedly.
#[derive(Debug)]
pub struct Reloader {
    scopes: Vec<Scope>,
    limits: DiscoveryLimits,
    mode: Mode,
    /// The cache of each scope, in the order of ranks.
    scope_caches: Vec<ScopeCache>,
    catalog: Arc<Catalog>,
}

/// The result of a reload.
#[derive(Debug, Clone)]
pub struct Reload {
    /// The current skills. Earlier snapshots do not change.
    pub catalog: Arc<Catalog>,
    /// Names that are new in the catalog, sorted.
    pub added: Vec<SkillName>,
    /// Names whose skill was read again or replaced.
    pub changed: Vec<SkillName>,
    /// Names that are no longer in the catalog.
    pub removed: Vec<SkillName>,
    /// Names whose skill cannot be loaded or read any more, so the catalog keeps the last good version. Each is
    /// also a finding of the rule [`LastGoodKept`](RuleId::LastGoodKept).
    pub broken: Vec<SkillName>,
    /// All findings about the current skills, as discovery reports them.
    pub diagnostics: Vec<Diagnostic>,
}

impl Reload {
    /// Whether the catalog is unchanged.
    #[must_use]
    pub const fn is_unchanged(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Loads the metadata of all skills in these scopes. It never fails: a skill that cannot be loaded is a
/// diagnostic, and the others are loaded. A missing scope is an error among the diagnostics if it is
/// [named](crate::ScopeKind::Named), and ignored otherwise.
#[must_use]
pub fn discover(scopes: &[Scope], limits: DiscoveryLimits, mode: Mode) -> Discovery {
    let loaded = Reloader::new(scopes.iter().cloned(), limits, mode).load_scopes();
    // The reloader is gone, so each skill has one owner.
    let skills = loaded.skills.into_iter().map(Arc::unwrap_or_clone).collect();
    Discovery { skills, diagnostics: loaded.diagnostics }
}

/// Loads the metadata of all skills in these directories, leniently, with the default limits. Earlier directories have the
/// higher rank.
///
/// # Errors
/// When one of the directories does not exist or is not a directory.
pub fn load_all(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Result<Discovery, SkillError> {
    let scopes: Vec<_> = paths.into_iter().map(Scope::named).collect();
    for scope in &scopes {
        resolve(&scope.path)?;
    }
    Ok(discover(&scopes, DiscoveryLimits::default(), Mode::Lenient))
}

impl Reloader {
    /// Creates a reloader. It has loaded nothing yet.
    #[must_use]
    pub fn new(scopes: impl IntoIterator<Item = Scope>, limits: DiscoveryLimits, mode: Mode) -> Self {
        let scopes: Vec<_> = scopes.into_iter().collect();
        let cached = scopes.iter().map(|_| ScopeCache::default()).collect();
        Self { scopes, limits, mode, scope_caches: cached, catalog: Arc::default() }
    }

    /// The catalog of the last reload; empty before the first.
    #[must_use]
    pub const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Checks all skills, and reads those again that changed since the last call. Like [`discover`], it never fails.
    ///
    /// A skill that was good and is broken now stays in the catalog unchanged. So does a skill that cannot be read
    /// any more: beneath an unreadable directory, behind a broken link, or beyond the limits. A skill is removed only
    /// when that is proven. Either its `SKILL.md` or package does not exist, or all directories and links that led to
    /// it were read and no longer do.
    pub fn reload(&mut self) -> Reload {
        let LoadedScopes { skills, broken, diagnostics } = self.load_scopes();
        self.compare(skills.into_iter().collect(), broken, diagnostics)
    }

    /// Loads the skills of all scopes, by rank. Only those that changed since the last call are read.
    fn load_scopes(&mut self) -> LoadedScopes {
        let mut diagnostics = Vec::new();
        let mut ranked = RankedSkills::default();
        let mut broken = HashSet::new();
        let mut budget = DiskBudget::new(self.limits.package_bytes);
        budget.count_existing(self.scope_caches.iter().map(ScopeCache::unpacked_bytes).sum());
        let scopes = by_rank(&self.scopes);
        for (scope, cache) in scopes.into_iter().zip(&mut self.scope_caches) {
            match open_scope(scope, &mut diagnostics) {
                ScopeAccess::Open(root) => {
                    cache.recheck(root, self.limits, self.mode, &mut budget, &mut diagnostics);
                }
                ScopeAccess::Closed => {
                    budget.release(cache.unpacked_bytes());
                    *cache = ScopeCache::default();
                }
                ScopeAccess::Unreachable => cache.mark_unreachable(&mut budget, &mut diagnostics),
            }
            let with_skill = cache.skills.values();
            let with_skill = with_skill.filter_map(|cached| Some((cached.last_valid.clone()?, cached)));
            let mut skills: Vec<_> = with_skill.collect();
            skills.sort_by(|(a, _), (b, _)| a.source().cmp(b.source()));
            let stale = skills.iter().filter(|(_, cached)| cached.is_stale_copy());
            broken.extend(stale.map(|(skill, _)| Arc::as_ptr(skill)));
            ranked.add(skills.into_iter().map(|(skill, _)| skill).collect(), &mut diagnostics);
        }
        let skills = ranked.skills;
        let broken_names = skills.iter().filter(|skill| broken.contains(&Arc::as_ptr(skill)));
        let mut broken: Vec<_> = broken_names.map(|skill| skill.name().clone()).collect();
        broken.sort();
        LoadedScopes { skills, broken, diagnostics }
    }

    /// Replaces the catalog, and compares it with the previous one.
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
        let was_removed = |skill: &&Arc<Skill>| now.get(skill.name().as_str()).is_none();
        let removed = before.iter().filter(was_removed).map(|skill| skill.name().clone()).collect();
        Reload { catalog: Arc::clone(now), added, changed, removed, broken, diagnostics }
    }
}

/// The skills of all scopes.
struct LoadedScopes {
    /// One skill of each name: by rank of the scope, then by path.
    skills: Vec<Arc<Skill>>,
    /// The names of which only the last good version is left, sorted.
    broken: Vec<SkillName>,
    diagnostics: Vec<Diagnostic>,
}

/// The cached state of a scope.
#[derive(Debug, Default)]
struct ScopeCache {
    /// The skills, by the path of their directory or package.
    skills: HashMap<PathBuf, CachedSkill>,
    /// The links that were followed, with their targets.
    links: HashMap<PathBuf, PathBuf>,
}

/// The cached state of a skill's directory or package.
#[derive(Debug, Clone)]
struct CachedSkill {
    /// The name under which it was found.
    name: OsString,
    /// The fingerprint just before it was read. `None` when it is unknown.
    fingerprint: Option<SkillFingerprint>,
    last_valid: Option<Arc<Skill>>,
    /// The findings if it could not be loaded; else empty.
    failure: Vec<Diagnostic>,
    visibility: Visibility,
}

/// Whether the last scan found the skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visibility {
    Visible,
    /// It is unknown whether it still exists.
    Unseen,
}

impl CachedSkill {
    /// Whether only the last good version is left.
    fn is_stale_copy(&self) -> bool {
        !self.failure.is_empty() || self.visibility == Visibility::Unseen
    }

    /// All findings besides those of the skill itself.
    fn findings(&self) -> impl Iterator<Item = Diagnostic> {
        let stale = self.last_valid.as_ref().filter(|_| self.is_stale_copy()).map(|skill| {
            let message = match self.visibility {
                Visibility::Visible => {
                    format!("the last valid version of skill `{}` stays loaded", skill.name())
                }
                Visibility::Unseen => format!(
                    "cannot determine whether skill `{}` still exists; its last valid version stays loaded",
                    skill.name()
                ),
            };
            Diagnostic::new(RuleId::LastGoodKept, Severity::Warning, message, skill.source())
        });
        let failure = self.failure.iter().filter(|_| self.visibility == Visibility::Visible);
        failure.cloned().chain(stale)
    }

    /// The same, marked as unseen. `None` when it is proven removed, or was never good.
    fn unseen(&self) -> Option<Self> {
        let skill = self.last_valid.as_ref()?;
        (!is_removed(skill)).then(|| Self { visibility: Visibility::Unseen, ..self.clone() })
    }

    fn unpacked_bytes(&self) -> u64 {
        self.last_valid.as_ref().map_or(0, |skill| skill.unpacked_bytes())
    }
}

/// File metadata of a candidate, read without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SkillFingerprint {
    /// Of the `SKILL.md` or the package.
    content: FileFingerprint,
    /// Of the manifest beside the `SKILL.md`, if there is one.
    manifest: Option<FileFingerprint>,
    /// Of the directory; a package has none.
    dir: Option<FileFingerprint>,
}

impl SkillFingerprint {
    /// Reads the fingerprint of a candidate. `None` when that fails, or when it is no skill.
    fn of(candidate: &SkillCandidate) -> Option<Self> {
        match candidate.kind {
            CandidateKind::Package => {
                Some(Self { content: fingerprint(&candidate.path)?, manifest: None, dir: None })
            }
            CandidateKind::Dir => {
                let content = SKILL_FILES.iter().find_map(|name| fingerprint(&candidate.path.join(name)))?;
                let manifest = fingerprint(&candidate.path.join(SIDECAR_FILE));
                Some(Self { content, manifest, dir: Some(fingerprint(&candidate.path)?) })
            }
        }
    }
}

fn fingerprint(path: &Path) -> Option<FileFingerprint> {
    std::fs::metadata(path).ok().map(|metadata| FileFingerprint::from(&metadata))
}

/// The result of checking a candidate.
enum CheckResult {
    Unchanged,
    Read(Box<ReadResult>),
    /// A changed package, with its name and fingerprint. Packages are unpacked later, one by one.
    Package(OsString, Option<SkillFingerprint>),
}

/// The result of reading a candidate.
struct ReadResult {
    name: OsString,
    fingerprint: Option<SkillFingerprint>,
    outcome: Result<Skill, SkillError>,
}

impl ScopeCache {
    fn unpacked_bytes(&self) -> u64 {
        self.skills.values().map(CachedSkill::unpacked_bytes).sum()
    }

    /// Records that the scope cannot be opened.
    fn mark_unreachable(&mut self, budget: &mut DiskBudget, diagnostics: &mut Vec<Diagnostic>) {
        let before = self.unpacked_bytes();
        let stale = self.skills.drain().filter_map(|(path, cached)| Some((path, cached.unseen()?)));
        self.skills = stale.collect();
        budget.release(before - self.unpacked_bytes());
        self.report(Vec::new(), diagnostics);
    }

    /// Scans the scope again.
    fn recheck(
        &mut self,
        root: SkillCandidate,
        limits: DiscoveryLimits,
        mode: Mode,
        budget: &mut DiskBudget,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let mut before = std::mem::take(&mut self.skills);
        let scanner = ScopeScanner::new(root, limits, |candidate: &SkillCandidate| {
            check_candidate(candidate, mode, &before)
        });
        let ScanResult { mut found, findings, visited, unverified: unverified_paths, links } = scanner.run();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));

        let seen: HashSet<&Path> = found.iter().map(|(path, _)| &**path).collect();
        let unverified = UnverifiedPaths::after_scan(visited, unverified_paths, &self.links);
        let missing: Vec<PathBuf> = before.keys().filter(|path| !seen.contains(&***path)).cloned().collect();
        for path in missing {
            let Some(cached) = before.remove(&path) else { continue };
            match cached.unseen().filter(|_| unverified.contains(&path)) {
                Some(stale) => drop(self.skills.insert(path, stale)),
                None => budget.release(cached.unpacked_bytes()),
            }
        }
        self.links.retain(|link, _| unverified.contains(link));
        self.links.extend(links);

        for (path, check) in found {
            let cached = before.remove(&path);
            if let Some(cached) = CachedSkill::after_check(&path, check, cached, mode, budget) {
                self.skills.insert(path, cached);
            }
        }
        self.report(findings, diagnostics);
    }

    /// Reports the findings of the scan and of the skills.
    fn report(&self, mut findings: Vec<Diagnostic>, diagnostics: &mut Vec<Diagnostic>) {
        findings.extend(self.skills.values().flat_map(CachedSkill::findings));
        findings.sort_by(|a, b| a.path().cmp(b.path()));
        diagnostics.extend(findings);
    }
}

impl CachedSkill {
    /// Returns the new state of a candidate after a check. `None` for an unchanged one that was not cached.
    fn after_check(
        path: &Path,
        check: Result<CheckResult, SkillError>,
        before: Option<Self>,
        mode: Mode,
        budget: &mut DiskBudget,
    ) -> Option<Self> {
        let (name, fingerprint, outcome) = match check {
            Ok(CheckResult::Unchanged) => {
                return before.map(|cached| Self { visibility: Visibility::Visible, ..cached });
            }
            Ok(CheckResult::Read(reading)) => (reading.name, reading.fingerprint, reading.outcome),
            Ok(CheckResult::Package(name, fingerprint)) => {
                // The new version may use the disk space of the previous one.
                let occupied = before.as_ref().map_or(0, Self::unpacked_bytes);
                budget.release(occupied);
                let outcome = load_package_within(path, mode, budget);
                if outcome.is_err() {
                    budget.count_existing(occupied);
                }
                (name, fingerprint.filter(|_| !is_machine_failure(&outcome)), outcome)
            }
            Err(error) => (OsString::new(), None, Err(error)),
        };
        Some(match outcome {
            Ok(skill) => Self {
                name,
                fingerprint,
                last_valid: Some(Arc::new(skill)),
                failure: Vec::new(),
                visibility: Visibility::Visible,
            },
            Err(error) => Self {
                name,
                fingerprint,
                last_valid: before.and_then(|before| before.last_valid),
                failure: findings_at(error, path).collect(),
                visibility: Visibility::Visible,
            },
        })
    }
}

/// Checks a candidate, and reads it if it changed. The fingerprint is taken first, so the next reload notices
/// later changes.
fn check_candidate(
    candidate: &SkillCandidate,
    mode: Mode,
    cached: &HashMap<PathBuf, CachedSkill>,
) -> Result<Option<CheckResult>, SkillError> {
    let fingerprint = SkillFingerprint::of(candidate);
    let is_as_before = |cached: &CachedSkill| {
        cached.fingerprint.is_some() && cached.fingerprint == fingerprint && cached.name == candidate.name
    };
    if cached.get(&candidate.path).is_some_and(is_as_before) {
        return Ok(Some(CheckResult::Unchanged));
    }
    if candidate.kind == CandidateKind::Package {
        return Ok(Some(CheckResult::Package(candidate.name.clone(), fingerprint)));
    }
    let outcome = match load_dir(candidate, mode).transpose() {
        None => return Ok(None),
        // On a system error, it is unknown whether this is a skill. The scan decides.
        Some(Err(error @ (SkillError::PermissionDenied { .. } | SkillError::Io { .. }))) => {
            return Err(error);
        }
        Some(outcome) => outcome,
    };
    let fingerprint = fingerprint.filter(|_| !is_machine_failure(&outcome));
    Ok(Some(CheckResult::Read(Box::new(ReadResult { name: candidate.name.clone(), fingerprint, outcome }))))
}

/// Whether the failure is a system error. It may be temporary, so the candidate is checked again.
const fn is_machine_failure(outcome: &Result<Skill, SkillError>) -> bool {
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

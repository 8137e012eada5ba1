//! Tells removed skills from temporarily unreadable ones.
//!
//! Pure, over the results of two scans, except for a final check of the skill's own file. A skill is removed when
//! that is proven: the directory or link that led to it was read and no longer does, or its file does not exist.
//! Neither a system error nor a limit of the scan is a proof.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::skill::{SKILL_FILES, Skill};

/// The paths whose absence a scan has not proven.
#[derive(Debug)]
pub(super) struct UnverifiedPaths {
    /// Resolved paths of directories, packages and links whose content is unknown.
    paths: HashSet<PathBuf>,
    /// All paths that the scan found. Those not in `paths` were read.
    visited: HashSet<OsString>,
}

impl UnverifiedPaths {
    /// Computes the unverified paths of a scan. `links_before` are the links that the previous scan followed.
    pub(super) fn after_scan(
        visited: HashSet<OsString>,
        uncertain: HashSet<PathBuf>,
        links_before: &HashMap<PathBuf, PathBuf>,
    ) -> Self {
        let mut unverified = Self { paths: uncertain, visited };
        if unverified.paths.is_empty() {
            return unverified;
        }
        // An unreadable link may still have its former target, and other links may lead on from there.
        loop {
            let led_on = links_before.iter().filter(|(link, target)| {
                let is_known =
                    unverified.paths.contains(*target) || unverified.visited.contains(target.as_os_str());
                !is_known && unverified.contains(link)
            });
            let led_on: Vec<PathBuf> = led_on.map(|(_, target)| target.clone()).collect();
            if led_on.is_empty() {
                return unverified;
            }
            unverified.paths.extend(led_on);
        }
    }

    /// Whether something may still exist at this path: the path itself, or its nearest ancestor that the scan
    /// found, is unverified.
    pub(super) fn contains(&self, path: &Path) -> bool {
        let verdicts = path.ancestors().map(|ancestor| {
            if self.paths.contains(ancestor) {
                Some(true)
            } else {
                self.visited.contains(ancestor.as_os_str()).then_some(false)
            }
        });
        verdicts.flatten().next().unwrap_or(false)
    }
}

/// Whether the file of a skill is proven not to exist any more.
pub(super) fn is_removed(skill: &Skill) -> bool {
    let is_absent = |path: &Path| {
        std::fs::symlink_metadata(path)
            .is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
    };
    match skill.package() {
        Some(package) => is_absent(package),
        None => SKILL_FILES.iter().all(|name| is_absent(&skill.root_dir().join(name))),
    }
}

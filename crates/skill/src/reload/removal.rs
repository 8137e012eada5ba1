//! Which skills are gone, and which only cannot be seen just now.
//!
//! Pure, over what two walks have found, but for the last look at a skill's own file. A skill is gone when that is
//! proven: the folder that held it, or the link that led to it, was looked at and holds or leads to it no more, or its
//! file is not there. An error of the operating system proves nothing, nor does a bound at which the walk ended.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::skill::{SKILL_FILES, Skill};

/// What a walk leaves open.
#[derive(Debug)]
pub(super) struct Doubt {
    /// Folders, packages and links of which it is not known what is there, by resolved path.
    uncertain: HashSet<PathBuf>,
    /// What was come upon. What is not uncertain of it was looked at.
    visited: HashSet<OsString>,
}

impl Doubt {
    /// What a walk leaves open, when the walk before it followed these links.
    pub(super) fn of(
        visited: HashSet<OsString>,
        uncertain: HashSet<PathBuf>,
        links_before: &HashMap<PathBuf, PathBuf>,
    ) -> Self {
        let mut doubt = Self { uncertain, visited };
        if doubt.uncertain.is_empty() {
            return doubt;
        }
        // A link that cannot be seen may lead where it led, and from there others may lead on.
        loop {
            let led_on = links_before.iter().filter(|(link, target)| {
                let is_known =
                    doubt.uncertain.contains(*target) || doubt.visited.contains(target.as_os_str());
                !is_known && doubt.covers(link)
            });
            let led_on: Vec<PathBuf> = led_on.map(|(_, target)| target.clone()).collect();
            if led_on.is_empty() {
                return doubt;
            }
            doubt.uncertain.extend(led_on);
        }
    }

    /// Whether what was at this path may still be there, as far as the walk can tell: the nearest place above it that
    /// the walk came upon, or the path itself, is uncertain.
    pub(super) fn covers(&self, path: &Path) -> bool {
        let verdicts = path.ancestors().map(|place| {
            if self.uncertain.contains(place) {
                Some(true)
            } else {
                self.visited.contains(place.as_os_str()).then_some(false)
            }
        });
        verdicts.flatten().next().unwrap_or(false)
    }
}

/// Whether the file that a skill was read from is proven not to be there any more.
pub(super) fn is_gone(skill: &Skill) -> bool {
    let is_absent = |path: &Path| {
        std::fs::symlink_metadata(path)
            .is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
    };
    match skill.package() {
        Some(package) => is_absent(package),
        None => SKILL_FILES.iter().all(|name| is_absent(&skill.root_dir().join(name))),
    }
}

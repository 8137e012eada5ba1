//! Computes which directories must be watched so that no change of a scope's skills is missed.
//!
//! It reads the file system and changes nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use conjure_skill::{DiscoveryLimits, Scope};

/// Which changes in a directory matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WatchInterest {
    Everything,
    /// Changes of entries with these names, which lead to a scope.
    Names(BTreeSet<OsString>),
}

/// The directories to watch, each by a path that leads to it.
pub(crate) type WatchPaths = BTreeMap<PathBuf, WatchInterest>;

/// Directories that are never searched.
const SKIPPED: [&str; 2] = [".git", "node_modules"];

/// The directories to watch for these scopes.
pub(crate) fn watch_paths(scopes: &[Scope], bounds: DiscoveryLimits) -> WatchPaths {
    let mut watch_paths = WatchPaths::new();
    for scope in scopes {
        add_ancestors(&mut watch_paths, &scope.path);
        // If the path contains links, the directories above the real path matter, too.
        if let Ok(real) = fs::canonicalize(&scope.path) {
            add_ancestors(&mut watch_paths, &real);
            add_directories(&mut watch_paths, real, bounds);
        }
    }
    watch_paths
}

/// Adds the directories above a path, each with the name of its entry that leads to the path. The path itself may
/// appear later.
fn add_ancestors(watch_paths: &mut WatchPaths, path: &Path) {
    let absolute = std::path::absolute(path);
    let mut path = absolute.as_deref().unwrap_or(path);
    while let (Some(above), Some(name)) = (path.parent(), path.file_name()) {
        let interest =
            watch_paths.entry(above.to_owned()).or_insert_with(|| WatchInterest::Names(BTreeSet::new()));
        if let WatchInterest::Names(names) = interest {
            names.insert(name.to_owned());
        }
        path = above;
    }
}

/// Adds a directory and those below it, level by level, within the limits of the search. Directories below a skill's
/// directory are not watched.
fn add_directories(watch_paths: &mut WatchPaths, root: PathBuf, bounds: DiscoveryLimits) {
    let mut pending = VecDeque::from([(root, 0)]);
    let mut seen = BTreeSet::new();
    while let Some((directory, depth)) = pending.pop_front() {
        if seen.len() >= bounds.directories || !directory.is_dir() || !seen.insert(directory.clone()) {
            continue;
        }
        let is_skill = ["SKILL.md", "skill.md"].iter().any(|name| directory.join(name).is_file());
        if !is_skill && depth < bounds.depth {
            // A directory that cannot be listed is watched too, because it may become readable.
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                if SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
                    continue;
                }
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => pending.push_back((entry.path(), depth + 1)),
                    Ok(kind) if kind.is_symlink() => {
                        if let Ok(real) = fs::canonicalize(entry.path()) {
                            add_ancestors(watch_paths, &real);
                            pending.push_back((real, depth + 1));
                        }
                    }
                    _ => {}
                }
            }
        }
        watch_paths.insert(directory, WatchInterest::Everything);
    }
}

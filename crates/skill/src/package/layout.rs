//! Finds the skill's files among the entries of an archive, and their paths in the skill's directory.
//!
//! Most packers put all entries below `name/`; others put `SKILL.md` at the root. Both are accepted.

use std::collections::HashMap;
use std::path::Path;

use unicode_normalization::UnicodeNormalization as _;

use crate::package::archive::{ZipEntry, ZipEntryKind};
use crate::package::entry_path;
use crate::package::limits::PackageLimits;
use crate::package::problem::{PackageEntryError, PackageProblem};
use crate::skill::SKILL_FILES;

/// The directory for metadata of macOS, which is no part of the skill.
const APPLE_DIR: &str = "__MACOSX";

/// The location of the skill in its package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `SKILL.md` is at the root.
    AtRoot,
    /// `SKILL.md` is in this directory.
    InDir(Box<str>),
}

impl Layout {
    /// Detects the layout. The paths of the entries must be valid: see [`PathTree`].
    pub(crate) fn detect(members: &[ZipEntry]) -> Result<Self, PackageEntryError> {
        let mut candidates: Vec<&ZipEntry> = members.iter().filter(|member| is_candidate(member)).collect();
        candidates.sort_by_key(|member| (member.path.matches('/').count(), &member.path));
        let skill_file = match candidates[..] {
            [] => return Err(PackageProblem::NoSkillFile.into()),
            [only] => only,
            [first, second, ..] => {
                let problem = PackageProblem::TwoSkillFiles { other: first.path.clone() };
                return Err(problem.in_entry(second.path.clone()));
            }
        };
        let Some((dir, _)) = skill_file.path.split_once('/') else { return Ok(Self::AtRoot) };
        let layout = Self::InDir(dir.into());
        let outside = members.iter().find(|member| {
            layout.relative(&member.path).is_none()
                && !is_macos_metadata(&member.path)
                && *member.path != *dir
        });
        match outside {
            None => Ok(layout),
            Some(member) => Err(PackageProblem::OutsideDir { dir: dir.into() }.in_entry(member.path.clone())),
        }
    }

    /// Returns the path of an entry in the skill's directory, if it belongs to the skill.
    pub(crate) fn relative<'a>(&self, path: &'a str) -> Option<&'a Path> {
        match self {
            Self::AtRoot if is_macos_metadata(path) => None,
            Self::AtRoot => Some(Path::new(path)),
            Self::InDir(dir) => path.strip_prefix(&**dir)?.strip_prefix('/').map(Path::new),
        }
    }

    /// Checks that the top directory is named like the skill.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), PackageEntryError> {
        match self {
            Self::InDir(dir) if dir.nfkc().ne(name.chars()) => {
                Err(PackageProblem::DirName { name: name.into() }.in_entry(dir.clone()))
            }
            _ => Ok(()),
        }
    }
}

/// Whether some reader could take an entry for the skill's main file: a `SKILL.md` at the root or in a top directory.
/// A deeper one is an ordinary file.
fn is_candidate(member: &ZipEntry) -> bool {
    let segments: Vec<_> = member.path.splitn(3, '/').collect();
    let name = match segments[..] {
        [name] => name,
        [dir, name] if dir != APPLE_DIR => name,
        _ => return false,
    };
    member.kind == ZipEntryKind::File && SKILL_FILES.contains(&name)
}

fn is_macos_metadata(path: &str) -> bool {
    path.split('/').next() == Some(APPLE_DIR)
}

/// The paths of all entries so far. It finds duplicates on any file system, and counts directories without an entry of
/// their own.
#[derive(Debug, Default)]
pub(crate) struct PathTree {
    /// By the node of the directory, and the name's [collision key](entry_path::collision_key).
    nodes: HashMap<(usize, String), Node>,
}

#[derive(Debug)]
struct Node {
    id: usize,
    name: Box<str>,
    kind: ZipEntryKind,
    /// Whether it has an entry of its own, and not only entries beneath it.
    is_entry: bool,
}

impl PathTree {
    /// The number of files and directories.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds the path of an entry.
    pub(crate) fn add(
        &mut self,
        path: &str,
        kind: ZipEntryKind,
        limits: &PackageLimits,
    ) -> Result<(), PackageProblem> {
        entry_path::check(path, limits)?;
        let mut dir = 0;
        let mut segments = path.split('/').peekable();
        let mut walked = 0;
        while let Some(segment) = segments.next() {
            let is_entry = segments.peek().is_none();
            let kind = if is_entry { kind } else { ZipEntryKind::Dir };
            let id = self.nodes.len() + 1;
            let is_full = self.nodes.len() >= limits.entries;
            let key = (dir, entry_path::collision_key(segment));
            if is_full && !self.nodes.contains_key(&key) {
                let limit = limits.entries as u64;
                return Err(PackageProblem::Limit { what: "files and directories before it", limit });
            }
            let node = self.nodes.entry(key).or_insert_with(|| Node {
                id,
                name: segment.into(),
                kind,
                is_entry: false,
            });
            if *node.name != *segment {
                let other = format!("{}{}", &path[..walked], node.name).into();
                return Err(PackageProblem::Collision { other });
            }
            if node.kind != kind {
                return Err(PackageProblem::FileAndDir);
            }
            if is_entry && std::mem::replace(&mut node.is_entry, true) {
                return Err(PackageProblem::Duplicate);
            }
            dir = node.id;
            walked += segment.len() + 1;
        }
        Ok(())
    }
}

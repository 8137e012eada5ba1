//! Which entries of an archive are the skill's files, and where they lie in its folder.
//!
//! Packers in use put every entry below `name/`; others put `SKILL.md` at the root. Both are read.

use std::collections::HashMap;
use std::path::Path;

use unicode_normalization::UnicodeNormalization as _;

use crate::package::archive::{Member, MemberKind};
use crate::package::entry_path;
use crate::package::limits::PackageLimits;
use crate::package::problem::{PackageProblem, Refusal};
use crate::skill::SKILL_FILES;

/// Where Apple's packer puts what only its own systems want. It is no part of the skill.
const APPLE_FOLDER: &str = "__MACOSX";

/// Where the skill lies in its package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `SKILL.md` lies at the root.
    AtRoot,
    /// It lies in this folder.
    InFolder(Box<str>),
}

impl Layout {
    /// The layout of these entries, whose paths must be fit for it: see [`Tree`].
    pub(crate) fn of(members: &[Member]) -> Result<Self, Refusal> {
        let mut candidates: Vec<&Member> = members.iter().filter(|member| is_candidate(member)).collect();
        candidates.sort_by_key(|member| (member.path.matches('/').count(), &member.path));
        let skill_file = match candidates[..] {
            [] => return Err(PackageProblem::NoSkillFile.into()),
            [only] => only,
            [first, second, ..] => {
                let problem = PackageProblem::TwoSkillFiles { other: first.path.clone() };
                return Err(problem.of_entry(second.path.clone()));
            }
        };
        let Some((folder, _)) = skill_file.path.split_once('/') else { return Ok(Self::AtRoot) };
        let layout = Self::InFolder(folder.into());
        let outside = members.iter().find(|member| {
            layout.relative(&member.path).is_none() && !is_apples(&member.path) && *member.path != *folder
        });
        match outside {
            None => Ok(layout),
            Some(member) => {
                Err(PackageProblem::OutsideFolder { folder: folder.into() }.of_entry(member.path.clone()))
            }
        }
    }

    /// The path that an entry has in the skill's folder, if it is one of the skill's.
    pub(crate) fn relative<'a>(&self, path: &'a str) -> Option<&'a Path> {
        match self {
            Self::AtRoot if is_apples(path) => None,
            Self::AtRoot => Some(Path::new(path)),
            Self::InFolder(folder) => path.strip_prefix(&**folder)?.strip_prefix('/').map(Path::new),
        }
    }

    /// Checks that the top folder is named as the skill.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), Refusal> {
        match self {
            Self::InFolder(folder) if folder.nfkc().ne(name.chars()) => {
                Err(PackageProblem::FolderName { name: name.into() }.of_entry(folder.clone()))
            }
            _ => Ok(()),
        }
    }
}

/// Whether an entry could be taken for the skill's main file by some reader: a `SKILL.md` at the root, or in a folder
/// there. One that lies deeper is a file like any other.
fn is_candidate(member: &Member) -> bool {
    let segments: Vec<_> = member.path.splitn(3, '/').collect();
    let name = match segments[..] {
        [name] => name,
        [folder, name] if folder != APPLE_FOLDER => name,
        _ => return false,
    };
    member.kind == MemberKind::File && SKILL_FILES.contains(&name)
}

fn is_apples(path: &str) -> bool {
    path.split('/').next() == Some(APPLE_FOLDER)
}

/// The folders and files that entries have named so far, to find those that are there twice, on any file system, and to
/// count also the folders that only the paths beneath them name.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// By the node of the folder and the name's [collision key](entry_path::collision_key).
    nodes: HashMap<(usize, String), Node>,
}

#[derive(Debug)]
struct Node {
    id: usize,
    name: Box<str>,
    kind: MemberKind,
    /// Whether an entry of its own named it, and not only one beneath it.
    is_entry: bool,
}

impl Tree {
    /// How many files and folders there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds the path of an entry.
    pub(crate) fn add(
        &mut self,
        path: &str,
        kind: MemberKind,
        limits: &PackageLimits,
    ) -> Result<(), PackageProblem> {
        entry_path::check(path, limits)?;
        let mut folder = 0;
        let mut segments = path.split('/').peekable();
        let mut walked = 0;
        while let Some(segment) = segments.next() {
            let is_entry = segments.peek().is_none();
            let kind = if is_entry { kind } else { MemberKind::Folder };
            let id = self.nodes.len() + 1;
            let is_full = self.nodes.len() >= limits.entries;
            let key = (folder, entry_path::collision_key(segment));
            if is_full && !self.nodes.contains_key(&key) {
                let limit = limits.entries as u64;
                return Err(PackageProblem::Limit { what: "files and folders before it", limit });
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
                return Err(PackageProblem::FileAndFolder);
            }
            if is_entry && std::mem::replace(&mut node.is_entry, true) {
                return Err(PackageProblem::Duplicate);
            }
            folder = node.id;
            walked += segment.len() + 1;
        }
        Ok(())
    }
}

//! Of a turn's files those that lie shallowest, however many a command makes and however long their names are.
//!
//! A package manager's folders hold thousands of files, and the report that the user wants lies at the top. What is kept at a time is
//! bounded by its number and by the bytes of its paths, also while more comes. It owns nothing beyond one look.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::Touched;

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptBounds {
    /// Files.
    pub(super) files: usize,
    /// Bytes of one path. A longer one is left out.
    pub(super) path: usize,
    /// Bytes of all paths.
    pub(super) paths: usize,
}

/// The shallowest files so far; of two as deep as each other the first by its path.
#[derive(Debug)]
pub(super) struct Shallowest {
    bounds: KeptBounds,
    kept: BinaryHeap<Ranked>,
    bytes: usize,
    has_left_out: bool,
}

#[derive(Debug)]
struct Ranked(Touched);

impl Shallowest {
    pub(super) fn new(bounds: KeptBounds) -> Self {
        Self { bounds, kept: BinaryHeap::new(), bytes: 0, has_left_out: false }
    }

    pub(super) fn add(&mut self, file: Touched) {
        if file.id.len() > self.bounds.path {
            self.has_left_out = true;
            return;
        }
        self.bytes += file.id.len();
        self.kept.push(Ranked(file));
        while self.kept.len() > self.bounds.files || self.bytes > self.bounds.paths {
            let Some(Ranked(deepest)) = self.kept.pop() else { break };
            self.bytes -= deepest.id.len();
            self.has_left_out = true;
        }
    }

    /// Whether something was left out.
    pub(super) const fn has_left_out(&self) -> bool {
        self.has_left_out
    }

    /// The shallowest first.
    pub(super) fn into_sorted(self) -> impl Iterator<Item = Touched> {
        self.kept.into_sorted_vec().into_iter().map(|Ranked(file)| file)
    }
}

impl Ranked {
    fn depth(&self) -> usize {
        self.0.id.bytes().filter(|byte| *byte == b'/').count()
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.depth().cmp(&other.depth()).then_with(|| self.0.id.cmp(&other.0.id))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}

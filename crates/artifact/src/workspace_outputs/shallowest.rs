//! A bounded list of a turn's files, shallowest first.
//!
//! A package manager's directories hold thousands of files, while the report that the user wants is near the top. Files and path bytes
//! are bounded at any time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use conjure_conversation::FileChange;

/// A file that the turn may have written.
#[derive(Debug)]
pub(super) struct CandidateFile {
    pub(super) id: String,
    pub(super) size: u64,
    /// Whether its times prove that the turn wrote it.
    pub(super) evidence: WriteEvidence,
    pub(super) change: FileChange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteEvidence {
    /// Its times prove it.
    Certain,
    /// It is an output only if size or digest differ from before.
    IfContentDiffers,
}

/// The limits of the list.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutputListLimits {
    /// The maximum number of files.
    pub(super) max_files: usize,
    /// The maximum number of bytes of one path. A file with a longer path is skipped.
    pub(super) max_path_bytes: usize,
    /// The maximum number of bytes of all paths.
    pub(super) max_total_path_bytes: usize,
}

/// The shallowest files so far, ordered by depth, then by path.
#[derive(Debug)]
pub(super) struct ShallowestFiles {
    limits: OutputListLimits,
    heap: BinaryHeap<RankedFile>,
    bytes: usize,
    has_skipped: bool,
}

#[derive(Debug)]
struct RankedFile(CandidateFile);

impl ShallowestFiles {
    pub(super) fn new(limits: OutputListLimits) -> Self {
        Self { limits, heap: BinaryHeap::new(), bytes: 0, has_skipped: false }
    }

    pub(super) fn add(&mut self, file: CandidateFile) {
        if file.id.len() > self.limits.max_path_bytes {
            self.has_skipped = true;
            return;
        }
        self.bytes += file.id.len();
        self.heap.push(RankedFile(file));
        while self.heap.len() > self.limits.max_files || self.bytes > self.limits.max_total_path_bytes {
            let Some(RankedFile(deepest)) = self.heap.pop() else { break };
            self.bytes -= deepest.id.len();
            self.has_skipped = true;
        }
    }

    /// Whether a file was skipped.
    pub(super) const fn has_skipped(&self) -> bool {
        self.has_skipped
    }

    /// The files, shallowest first.
    pub(super) fn into_sorted(self) -> impl Iterator<Item = CandidateFile> {
        self.heap.into_sorted_vec().into_iter().map(|RankedFile(file)| file)
    }
}

impl RankedFile {
    fn depth(&self) -> usize {
        self.0.id.bytes().filter(|byte| *byte == b'/').count()
    }
}

impl Ord for RankedFile {
    fn cmp(&self, other: &Self) -> Ordering {
        self.depth().cmp(&other.depth()).then_with(|| self.0.id.cmp(&other.0.id))
    }
}

impl PartialOrd for RankedFile {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RankedFile {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for RankedFile {}

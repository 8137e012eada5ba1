//! Captures one output stream: its head, its tail, and a spill file when both do not hold everything.
//!
//! State: at most `head + tail` bytes, and the file's handle.

use std::collections::VecDeque;

use conjure_guest::protocol::{CaptureLimits, CapturedOutput};

use super::spill::{Spill, SpillDir};

/// The maximum size of head and of tail.
const END_MAX: u32 = 1024 * 1024;

/// The captured part of one stream.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) head: Vec<u8>,
    pub(super) tail: VecDeque<u8>,
    head_max: usize,
    tail_max: usize,
    spill: Spill,
}

impl Capture {
    pub(super) fn new(limits: CaptureLimits) -> Self {
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            head_max: limits.head.min(END_MAX) as usize,
            tail_max: limits.tail.min(END_MAX) as usize,
            spill: Spill::new(limits.spill),
        }
    }

    /// Accepts the next bytes of the stream.
    pub(super) fn push(&mut self, bytes: &[u8], mut dir: Option<&mut SpillDir>) {
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_max - self.head.len()));
        self.head.extend_from_slice(first);
        if rest.is_empty() {
            return;
        }
        if self.tail.len() + rest.len() > self.tail_max {
            if self.spill.is_unused() {
                // Until now, head and tail held everything.
                self.spill.start(dir.as_deref_mut());
                self.spill.write(&self.head, dir.as_deref_mut());
                let (left, right) = self.tail.as_slices();
                self.spill.write(left, dir.as_deref_mut());
                self.spill.write(right, dir.as_deref_mut());
            }
            self.spill.write(rest, dir);
        }
        if let Some(last) = rest.len().checked_sub(self.tail_max).and_then(|from| rest.get(from..)) {
            self.tail.clear();
            self.tail.extend(last);
        } else {
            let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_max);
            self.tail.drain(..excess);
            self.tail.extend(rest);
        }
    }

    /// Returns the result for a stream of `total` bytes.
    pub(super) fn result(&self, total: u64, dir: Option<&SpillDir>) -> CapturedOutput {
        let (spill_path, spilled) = self.spill.result(dir);
        CapturedOutput { total, head: 0, tail: 0, spill_path, spilled }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn head_tail_and_file_agree_with_the_whole(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            head in 0_u32..50,
            tail in 0_u32..50,
            spill in 0_u64..300,
            total in 1_u64..400,
        ) {
            let dir = tempfile::tempdir().expect("a directory");
            let mut target = SpillDir::open(dir.path().to_str().expect("UTF-8"), total);
            let mut capture = Capture::new(CaptureLimits { head, tail, spill });
            for piece in &pieces {
                capture.push(piece, Some(&mut target));
            }
            let whole = pieces.concat();
            let cut = whole.len().min(head as usize);
            prop_assert_eq!(&capture.head, &whole[..cut]);
            let rest = &whole[cut..];
            let last = &rest[rest.len().saturating_sub(tail as usize)..];
            prop_assert_eq!(capture.tail.make_contiguous(), last);
            let result = capture.result(whole.len() as u64, Some(&target));
            if whole.len() as u64 > u64::from(head) + u64::from(tail) && spill > 0 {
                let kept = std::fs::read(result.spill_path.expect("a file")).expect("readable");
                prop_assert_eq!(&kept, &whole[..whole.len().min(spill.min(total) as usize)]);
                prop_assert_eq!(result.spilled, kept.len() as u64);
            } else {
                prop_assert_eq!(result.spill_path, None);
            }
        }
    }
}

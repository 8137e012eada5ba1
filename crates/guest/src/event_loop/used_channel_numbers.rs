//! The set of channel numbers that were ever used. It needs little memory, because hosts number channels roughly in
//! order.

use std::collections::BTreeMap;

/// The maximum number of ranges. A host that leaves more gaps does not number in order.
const RANGES_MAX: usize = 4096;

/// The used numbers, as inclusive ranges: first to last.
#[derive(Debug, Default)]
pub(crate) struct UsedChannels {
    ranges: BTreeMap<u32, u32>,
}

impl UsedChannels {
    /// Marks a number as used. Returns `false` when it was used before, is 0, or creates too many gaps.
    pub(crate) fn claim(&mut self, channel: u32) -> bool {
        let before = self.ranges.range(..=channel).next_back().map(|(first, last)| (*first, *last));
        if channel == 0 || before.is_some_and(|(_, last)| last >= channel) {
            return false;
        }
        let follows = channel.checked_add(1).and_then(|next| self.ranges.remove(&next));
        let last = follows.unwrap_or(channel);
        match before.filter(|(_, last)| last.checked_add(1) == Some(channel)) {
            Some((first, _)) => self.ranges.insert(first, last),
            None => self.ranges.insert(channel, last),
        };
        self.ranges.len() <= RANGES_MAX
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_is_claimed_once(numbers in prop::collection::vec(0_u32..40, 0..80)) {
            let mut used = UsedChannels::default();
            let mut model = std::collections::BTreeSet::from([0]);
            for channel_id in numbers {
                prop_assert_eq!(used.claim(channel_id), model.insert(channel_id));
            }
        }
    }

    #[test]
    fn the_last_number_has_no_successor() {
        let mut used = UsedChannels::default();
        assert!(used.claim(u32::MAX));
        assert!(used.claim(u32::MAX - 1));
        assert!(!used.claim(u32::MAX));
        assert_eq!(used.ranges.len(), 1);
    }
}

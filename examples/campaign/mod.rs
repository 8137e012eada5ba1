//! What the fuzz campaigns of the rooms share: cases from a seed, changes to valid input, a report.
//!
//! A campaign is an example `fuzz_…` of its crate, run by hand:
//!
//! ```text
//! cargo run --release -p CRATE --example fuzz_… -- [--cases N] [--seed S] [--first CASE] [--target NAME]
//! ```
//!
//! The same seed gives the same cases. A case that fails is named and ends the run; `--first CASE --cases 1` runs it
//! alone. Set `CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true` and `CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true`, or a
//! release build hides what a debug build stops at.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One kind of case: plays the case that `Random` chooses, fails by panic, and says what became of it.
pub(crate) type Target<'t> = (&'static str, &'t mut dyn FnMut(&mut Random) -> &'static str);

/// Runs the cases that the command line asks for, and fails when one fails or the process ever held more than
/// `most_memory` bytes.
pub(crate) fn run(most_memory: u64, targets: &mut [Target<'_>]) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut options =
        BTreeMap::from([("--cases", "100000"), ("--seed", "1"), ("--first", "0"), ("--target", "")]);
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { panic!("`{}` has no value", pair[0]) };
        *options.get_mut(name.as_str()).unwrap_or_else(|| panic!("no option `{name}`")) = value.as_str();
    }
    let number =
        |name: &str| options[name].parse::<u64>().unwrap_or_else(|_| panic!("`{name}` takes a number"));
    let (cases, seed, first, only) =
        (number("--cases"), number("--seed"), number("--first"), options["--target"]);
    for (name, play) in targets.iter_mut().filter(|(name, _)| only.is_empty() || *name == only) {
        let mut verdicts: BTreeMap<&str, u64> = BTreeMap::new();
        for case in first..first + cases {
            let mut random = Random::of(seed.wrapping_mul(0x9E37_79B9).wrapping_add(case));
            match catch_unwind(AssertUnwindSafe(|| play(&mut random))) {
                Ok(verdict) => *verdicts.entry(verdict).or_default() += 1,
                Err(_) => panic!("{name}: case {case} of seed {seed} failed"),
            }
            if case % 65_536 == 0 {
                assert!(peak_memory() <= most_memory, "{name}: {} bytes at case {case}", peak_memory());
            }
        }
        let peak = peak_memory();
        println!(
            "{name}: {cases} cases from {first} of seed {seed}: {verdicts:?}; at most {} KiB",
            peak >> 10
        );
        assert!(peak <= most_memory, "{name}: held {peak} bytes, and the maximum is {most_memory}");
    }
}

/// The most memory that this process ever held, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    peak.and_then(|peak| peak.parse::<u64>().ok()).unwrap_or_default() << 10
}

/// `SplitMix64`: enough for choosing changes.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The same numbers for the same seed; those of neighbours have nothing in common.
    pub(crate) const fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Changes `bytes` in up to `most` places: bits, bytes, numbers, parts removed, doubled or replaced by one of
    /// `words`.
    pub(crate) fn mutate(&mut self, bytes: &mut Vec<u8>, most: usize, words: &[&str]) {
        for _ in 0..self.below(most + 1) {
            let at = self.below(bytes.len() + 1);
            let length = self.below(12).min(bytes.len() - at);
            match self.below(7) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 if at < bytes.len() => bytes[at] = self.pick(b"\0\x01\x7f\x80\xff\"\\{}[],:0-9e"),
                2 => drop(bytes.drain(at..at + length)),
                3 => bytes.extend_from_within(at..at + length),
                4 => bytes.truncate(at.max(1)),
                5 => {
                    let number =
                        self.pick(&[0, 1, 8, 9, 0xFFFF, 0x10_0000, 0x10_0001, 1 << 31, u64::MAX, 1 << 63]);
                    bytes.splice(at..at + length.min(4), number.to_string().into_bytes());
                }
                _ => {
                    let word = self.pick(words);
                    bytes.splice(at..at + length, word.bytes());
                }
            }
        }
    }
}

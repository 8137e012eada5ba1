//! Hammers the readers of strangers' files with mutated input: no panic, and memory that stays bounded.
//!
//! `cargo run --release -p conjure-skill --example hammer -- frontmatter|packages CASES SEED`. The same seed gives the
//! same cases. A case that panics ends the run and names its number.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a campaign is run by hand, prints what it found and fails loudly"
)]

use std::panic::catch_unwind;

use conjure_skill::{Frontmatter, Mode, Package, PackageLimits, SkillError, pack};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, cases, seed] = &arguments[..] else {
        panic!("usage: hammer frontmatter|packages CASES SEED")
    };
    let (cases, seed): (u64, u64) = (cases.parse().unwrap(), seed.parse().unwrap());
    let samples = match target.as_str() {
        "frontmatter" => frontmatter_samples(),
        "packages" => package_samples(),
        other => panic!("no target `{other}`"),
    };
    let mut accepted = 0;
    for case in 0..cases {
        let bytes = mutate(&samples, &mut Random::new(seed.wrapping_mul(0x9E37_79B9).wrapping_add(case)));
        let outcome =
            catch_unwind(|| if target == "packages" { package(&bytes) } else { frontmatter(&bytes) });
        match outcome {
            Ok(true) => accepted += 1,
            Ok(false) => {}
            Err(_) => panic!("case {case} of seed {seed} panicked: {bytes:?}"),
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!("{target}: {cases} cases, seed {seed}, {accepted} accepted, no panic; {peak}");
}

fn frontmatter(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let strict = Frontmatter::parse(&text, Mode::Strict);
    let lenient = Frontmatter::parse(&text, Mode::Lenient);
    assert!(strict.is_err() || lenient.is_ok(), "what is strictly valid is also lenient");
    lenient.is_ok()
}

fn package(bytes: &[u8]) -> bool {
    let mut limits = PackageLimits::default();
    (limits.total_bytes, limits.entry_bytes) = (1 << 16, 1 << 15);
    let Ok(package) = Package::from_bytes(bytes.to_vec(), "p.skill", limits) else { return false };
    let mut total = 0;
    for file in package.files() {
        assert!(!file.path().is_absolute() && file.path().components().all(|part| part.as_os_str() != ".."));
        match package.read(file.path()) {
            Ok(content) => {
                assert_eq!(content.len() as u64, file.size());
                total += content.len() as u64;
            }
            Err(error) => assert!(matches!(error, SkillError::InvalidPackage { entry: Some(_), .. })),
        }
    }
    assert!(total <= limits.total_bytes);
    package.frontmatter(Mode::Lenient).is_ok()
}

fn frontmatter_samples() -> Vec<Vec<u8>> {
    [
        "---\nname: good\ndescription: Use when: asked # not\nmetadata:\n  a: 'it''s'\n  b: \"\\u00e9\\n\"\n---\nbody\n",
        "---\r\nname: caf\u{E9}\r\ndescription: |\r\n  text\r\n   more\r\n\r\n  end\r\nlicense: >-\r\n  f\r\n---\r\n",
        "---\nname: x\ndescription: &a [*a, {b: c}]\nallowed-tools: !!str Read\n? k\n: v\n---",
        "\u{FEFF}---\nname: - \n\tdescription:\n- a\n- b: c\n  d: e\n...\n---\n---",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn package_samples() -> Vec<Vec<u8>> {
    let temp = tempfile::tempdir().unwrap();
    let sizes = [0, 40, 3000];
    sizes
        .map(|size| {
            let folder = temp.path().join("good");
            std::fs::create_dir_all(folder.join("scripts")).unwrap();
            std::fs::write(folder.join("SKILL.md"), "---\nname: good\ndescription: d\n---\n").unwrap();
            std::fs::write(folder.join("scripts/a.py"), "print('é')\n".repeat(size / 10)).unwrap();
            std::fs::write(folder.join("é"), "x").unwrap();
            let mut bytes = Vec::new();
            pack(&folder, &mut bytes, PackageLimits::default()).unwrap();
            bytes
        })
        .to_vec()
}

/// A sample with a few changes: bytes set, flipped, removed, doubled, or spliced from another sample.
fn mutate(samples: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const INTERESTING: [u8; 16] = *b"\0\x01\x7f\x80\xff\n\r\t :-#'\"|[";
    let mut bytes = samples[random.below(samples.len())].clone();
    for _ in 0..=random.below(6) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        let length = random.below(16).min(bytes.len() - at);
        // Half of the changes to a package hit a header.
        let pairs = bytes.windows(2).enumerate();
        let headers: Vec<usize> = pairs.filter(|(_, two)| two == b"PK").map(|(at, _)| at).collect();
        if !headers.is_empty() && random.below(2) == 0 {
            let at = headers[random.below(headers.len())] + 4 + random.below(42);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = [0, 1, 8, 0xff, random.below(256) as u8][random.below(5)];
            }
            continue;
        }
        match random.below(7) {
            0 => bytes[at] = random.below(256) as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = INTERESTING[random.below(INTERESTING.len())],
            3 => drop(bytes.drain(at..at + length)),
            4 => bytes.extend_from_within(at..at + length),
            5 => {
                let part = bytes[at..at + length].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let other = &samples[random.below(samples.len())];
                let from = random.below(other.len());
                let part = other[from..(from + length).min(other.len())].to_vec();
                bytes.splice(at..at + length, part);
            }
        }
    }
    bytes
}

/// SplitMix64: enough for choosing changes.
struct Random(u64);

impl Random {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

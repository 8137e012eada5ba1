//! `skills_load`: the metadata of 10,000 skills, loaded through discovery, against plainly reading the same files.
//!
//! Both sides read from a warm file cache and alternate within one run; the figures are medians. The plain side reads
//! each `SKILL.md` whole into memory, one after another on one thread, and does nothing with it; ours finds the files,
//! reads as much as holds the frontmatter, parses it, checks it and sorts the skills. Excluded on both sides: making
//! the files, and freeing what was loaded.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and may fail loudly"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_skill::{Discovery, DiscoveryLimits, Mode, Scope, discover};

const SKILLS: usize = 10_000;
const ROUNDS: usize = 15;

fn main() {
    let temp = tempfile::tempdir().unwrap();
    let files = make_skills(temp.path());
    let bounds = DiscoveryLimits { depth: 6, directories: SKILLS + 1, ..DiscoveryLimits::default() };
    let scopes = [Scope::named(temp.path())];

    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for _ in 0..=ROUNDS {
        let (time, contents) = timed(|| files.iter().map(|file| fs::read(file).unwrap()).collect::<Vec<_>>());
        bytes = contents.iter().map(Vec::len).sum();
        plain.push(time);
        let (time, found) = timed(|| discover(&scopes, bounds, Mode::Lenient));
        check(&found);
        ours.push(time);
    }
    let (ours, plain) = (median(ours), median(plain));
    println!(
        "{SKILLS} skills, {bytes} bytes of SKILL.md: metadata loaded in {ours:.4} s, files plainly read in {plain:.4} s \
         (medians of {ROUNDS} rounds)"
    );
    println!(
        "RESULT goal=skills_load case=metadata-10k ours={ours:.4} other={plain:.4} unit=s ratio={:.2}",
        ours / plain
    );
}

/// Writes the skills, with frontmatters and bodies of the usual sizes, and lists their files in discovery's order.
fn make_skills(root: &Path) -> Vec<PathBuf> {
    (0..SKILLS)
        .map(|index| {
            let dir = root.join(format!("skill-{index:05}"));
            fs::create_dir(&dir).unwrap();
            let file = dir.join("SKILL.md");
            fs::write(&file, skill_file(index)).unwrap();
            file
        })
        .collect()
}

fn skill_file(index: usize) -> String {
    let sentence = "Computes growth by region from a table and writes a report. ";
    let description = sentence.repeat(2 + index % 6);
    let body =
        format!("{sentence}Run `scripts/run.py` with the path of the table.\n").repeat(10 + index % 50);
    format!(
        "---\nname: skill-{index:05}\ndescription: {description}\nlicense: MIT\nmetadata:\n  author: somebody\n  \
         version: \"1.{index}\"\n---\n\n# Skill {index}\n\n{body}"
    )
}

fn check(found: &Discovery) {
    assert_eq!(found.skills.len(), SKILLS, "{:?}", found.diagnostics.first());
    assert!(found.diagnostics.is_empty());
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time, it does not decide by it")]
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = std::time::Instant::now();
    let outcome = work();
    (start.elapsed(), outcome)
}

/// The median in seconds, without the first round, which warms the cache.
fn median(times: Vec<Duration>) -> f64 {
    let mut times: Vec<_> = times.into_iter().skip(1).collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

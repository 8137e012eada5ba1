//! Versions of programs: compares them, and finds them in version output.
//!
//! Pure. There is no standard: each program numbers its versions in its own way. This module parses the versions of
//! programs that skills require.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The maximum size of version output to parse.
const MAX_OUTPUT_BYTES: usize = 4096;
/// The maximum number of components of a version, and the maximum length of its text in bytes.
const MAX_NUMBERS: usize = 16;
const MAX_BYTES: usize = 128;

/// A version: numbers separated by dots, and a suffix.
///
/// Numbers compare numerically, and missing ones are zero: `2.9` is before `2.10`, and `2.40` equals `2.40.0`. A
/// version with `rc1`, `beta`, `a2` or the like is before the release. A version with a letter or patch (`1.1.1w`,
/// `9.2p1`) is after it. Suffixes of distributions and builders (`-1ubuntu2`, `+deb12u1`, ` (Apple Git-154)`) are
/// ignored. An epoch (`1:0.9`) takes precedence over everything.
#[derive(Debug, Clone)]
pub struct Version {
    text: String,
    epoch: u64,
    numbers: Vec<u64>,
    stage: Stage,
}

/// The suffix, ordered by release.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Before the release: the stage, and its number.
    Before(u8, u64),
    Release,
    /// After the release: a letter or word, and its number.
    AfterRelease(String, u64),
}

/// The text is not a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a version is numbers with dots between them, as in \"2.40\"")]
pub struct ParseVersionError;

impl Version {
    /// Finds the version in the output of `--version`: the first number with a dot, preferring those outside
    /// parentheses. In a line without any, the first separate number.
    ///
    /// ```
    /// use conjure_skill::Version;
    ///
    /// let version = Version::in_output("git version 2.39.5 (Apple Git-154)\n");
    /// assert!(version.is_some_and(|version| version.to_string() == "2.39.5"));
    /// ```
    #[must_use]
    pub fn in_output(output: &str) -> Option<Self> {
        let mut end = output.len().min(MAX_OUTPUT_BYTES);
        while !output.is_char_boundary(end) {
            end -= 1;
        }
        let output = &output[..end];
        let dotted = |version: &Self| version.numbers.len() > 1;
        let in_lines = |predicate: &dyn Fn(&Candidate) -> bool| {
            output.lines().find_map(|line| candidates(line).into_iter().find(predicate))
        };
        // The first line with a version decides. Later lines describe libraries and licences.
        let first = output.lines().find_map(|line| {
            let found: Vec<_> = candidates(line).into_iter().filter(|found| dotted(&found.version)).collect();
            let outside = found.iter().find(|found| found.depth == 0);
            outside.or(found.first()).cloned()
        });
        first
            .or_else(|| in_lines(&|found| found.is_separate_word && found.depth == 0))
            .map(|found| found.version)
    }

    /// Parses a version at the start of a text. Also returns its length.
    fn prefix(text: &str) -> Option<(Self, usize)> {
        let (first, mut at) = digits(text)?;
        let mut epoch = 0;
        let mut numbers = vec![first];
        if let Some((number, length)) = text[at..].strip_prefix(':').and_then(digits) {
            epoch = first;
            numbers = vec![number];
            at += 1 + length;
        }
        loop {
            // `_` as in Java's 1.8.0_392, but not as in x86_64.
            let separators: &[char] = if numbers.len() > 1 { &['.', '_'] } else { &['.'] };
            let Some((number, length)) = text[at..].strip_prefix(separators).and_then(digits) else { break };
            if numbers.len() == MAX_NUMBERS {
                return None;
            }
            numbers.push(number);
            at += 1 + length;
        }
        let (stage, length) = Stage::prefix(&text[at..]);
        at += length;
        Some((Self { text: text[..at].to_owned(), epoch, numbers, stage }, at))
    }
}

/// A version in a line.
#[derive(Debug, Clone)]
struct Candidate {
    version: Version,
    /// The number of enclosing parentheses.
    depth: usize,
    /// Whether it is separate: with space or the line's start or end on both sides.
    is_separate_word: bool,
}

/// Returns all versions in a line, in order.
fn candidates(line: &str) -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut depth = 0_usize;
    let mut at = 0;
    let mut before = None;
    while let Some(c) = line[at..].chars().next() {
        let is_start = c.is_ascii_digit() && !matches!(before, Some('.' | '0'..='9'));
        if let Some((version, length)) = is_start.then(|| Version::prefix(&line[at..])).flatten() {
            let after = line[at + length..].chars().next();
            let is_separate_word =
                before.is_none_or(char::is_whitespace) && after.is_none_or(char::is_whitespace);
            found.push(Candidate { version, depth, is_separate_word });
            before = line[at..at + length].chars().next_back();
            at += length;
            continue;
        }
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = Some(c);
        at += c.len_utf8();
    }
    found
}

/// Parses the number at the start of a text. Also returns its length.
fn digits(text: &str) -> Option<(u64, usize)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    // A number with more digits saturates. No real version has one.
    (length > 0).then(|| (text[..length].parse().unwrap_or(u64::MAX), length))
}

impl Stage {
    /// Parses the suffix. Also returns its length.
    fn prefix(text: &str) -> (Self, usize) {
        let release = (Self::Release, 0);
        let separator = text.chars().next().filter(|c| matches!(c, '-' | '.' | '_' | '~'));
        let start = separator.map_or(0, char::len_utf8);
        let letters = text[start..].bytes().take_while(u8::is_ascii_alphabetic).count();
        if letters == 0 {
            return release;
        }
        let word = text[start..start + letters].to_ascii_lowercase();
        let mut end = start + letters;
        let dot = text[end..]
            .strip_prefix(['.', '-'])
            .and_then(digits)
            .map(|(number, length)| (number, length + 1));
        let number = digits(&text[end..]);
        let rank = match (&*word, number.or(dot)) {
            ("dev" | "snapshot" | "nightly" | "canary" | "git", _) => Some(0),
            ("alpha", _) | ("a", Some(_)) => Some(1),
            ("beta", _) | ("b", Some(_)) => Some(2),
            ("rc" | "pre" | "preview", _) | ("c", Some(_)) => Some(3),
            _ => None,
        };
        if let Some(rank) = rank {
            let (number, length) = number.or(dot).unwrap_or_default();
            return (Self::Before(rank, number), end + length);
        }
        let is_patch = word == "p" && number.is_some();
        let is_letter = letters == 1 && number.is_none();
        let ends = !text[end..].starts_with(|c: char| c.is_alphanumeric()) || is_patch;
        if separator.is_none() && (is_patch || is_letter) && ends {
            let (number, length) = number.unwrap_or_default();
            end += length;
            return (Self::AfterRelease(word, number), end);
        }
        release
    }
}

impl FromStr for Version {
    type Err = ParseVersionError;

    /// A leading `v` is skipped. An unknown suffix is kept in the text and ignored.
    fn from_str(text: &str) -> Result<Self, ParseVersionError> {
        let text = text.trim();
        let unprefixed = text.strip_prefix('v').unwrap_or(text);
        let is_invalid = text.len() > MAX_BYTES || text.contains(|c: char| c.is_control());
        let (version, length) = Self::prefix(unprefixed).filter(|_| !is_invalid).ok_or(ParseVersionError)?;
        let rest = &unprefixed[length..];
        if rest.is_empty() || rest.starts_with([' ', '-', '+', '~', '(']) {
            Ok(Self { text: text.to_owned(), ..version })
        } else {
            Err(ParseVersionError)
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Version {
    /// The numbers without trailing zeros.
    fn significant(&self) -> &[u64] {
        let length = self.numbers.iter().rposition(|number| *number != 0).map_or(0, |last| last + 1);
        &self.numbers[..length]
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |version: &Self| (version.epoch, version.stage.clone());
        let ((epoch, stage), (other_epoch, other_stage)) = (key(self), key(other));
        epoch
            .cmp(&other_epoch)
            .then_with(|| self.significant().cmp(other.significant()))
            .then_with(|| stage.cmp(&other_stage))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

#[cfg(test)]
mod tests;

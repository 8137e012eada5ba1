//! Path patterns.

use std::fmt;

use super::error::AllowRuleError;

/// A path pattern: `*` and `?` match within a segment, a segment `**` matches any number of segments, including
/// none.
///
/// An absolute pattern matches absolute paths, a relative one relative paths. Links in a path are not resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Glob {
    is_absolute: bool,
    segments: Box<[Segment]>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Segment {
    /// `**`
    Any,
    /// Text with `*` and `?`.
    Like(String),
}

impl Glob {
    pub(crate) fn new(text: &str) -> Result<Self, AllowRuleError> {
        let refused = |reason| Err(AllowRuleError::Pattern { reason });
        if text.contains(|c: char| matches!(c, '[' | ']' | '{' | '}' | '\\' | '!') || c.is_control()) {
            return refused("a path's pattern has no other wildcards than `*`, `?` and `**`");
        }
        if text.starts_with('~') || text.contains("://") {
            return refused("a path's pattern is a path in the sandbox: `~` and schemes mean nothing there");
        }
        let mut segments = Vec::new();
        for segment in segments_of(text) {
            segments.push(match segment {
                ".." => return refused("a path's pattern has no `..`"),
                "**" => Segment::Any,
                like if like.contains("**") => {
                    return refused("`**` stands for whole segments of a path, as in `src/**`");
                }
                like => Segment::Like(like.to_owned()),
            });
        }
        if segments.is_empty() {
            return refused("a path's pattern names at least one segment");
        }
        segments.dedup_by(|a, b| (&*a, &*b) == (&Segment::Any, &Segment::Any));
        Ok(Self { is_absolute: text.starts_with('/'), segments: segments.into() })
    }

    /// Whether a path matches. The cost is proportional to the product of both lengths.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        if path.contains("://") || path.starts_with('~') || path.contains(char::is_control) {
            return false;
        }
        let names: Vec<_> = segments_of(path).collect();
        if names.is_empty() || names.contains(&"..") || path.starts_with('/') != self.is_absolute {
            return false;
        }
        // `fits[n]`: whether the segments so far match the first `n` names.
        let mut fits = vec![false; names.len() + 1];
        fits[0] = true;
        for segment in &self.segments {
            let before = fits.clone();
            for n in 0..=names.len() {
                fits[n] = match segment {
                    Segment::Any => before[n] || (n > 0 && fits[n - 1]),
                    Segment::Like(like) => n > 0 && before[n - 1] && is_like(names[n - 1], like),
                };
            }
        }
        fits[names.len()]
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments.iter().enumerate() {
            if index > 0 || self.is_absolute {
                f.write_str("/")?;
            }
            f.write_str(match segment {
                Segment::Any => "**",
                Segment::Like(like) => like,
            })?;
        }
        Ok(())
    }
}

/// The segments of a path, without empty ones and `.`.
fn segments_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty() && *segment != ".")
}

/// Whether a name matches a segment with `*` and `?`. After a mismatch, only the last `*` is extended.
fn is_like(name: &str, like: &str) -> bool {
    let (name, like): (Vec<char>, Vec<char>) = (name.chars().collect(), like.chars().collect());
    let (mut n, mut l) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match like.get(l) {
            Some('*') => {
                star = Some((n, l));
                l += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (n, l) = (n + 1, l + 1),
            _ => {
                let Some((consumed, at)) = star else { return false };
                star = Some((consumed + 1, at));
                (n, l) = (consumed + 1, at + 1);
            }
        }
    }
    like[l..].iter().all(|c| *c == '*')
}

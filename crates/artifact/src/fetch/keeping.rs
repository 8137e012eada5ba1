//! How long an answer may be used again without asking, by its server's word (RFC 9111).
//!
//! A word of the server's only makes the time shorter than the host's. What is of caches that many share (`s-maxage`), and what needs
//! the server's idea of the time (`Expires`), is not looked at. It owns no state.

use std::time::Duration;

use reqwest::header::{AGE, CACHE_CONTROL, HeaderMap};

/// What a server says of how long its answer may be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Nothing: for as long as the host says.
    AsConfigured,
    /// For so long since it was made (`max-age`), if the host does not say less. Zero: when the server agrees, each time (`no-cache`).
    AtMost(Duration),
    /// Not at all (`no-store`).
    Never,
}

impl Keeping {
    /// The word of these headers; none where they do not speak of it.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(CACHE_CONTROL).iter();
        values.map(|value| Self::of_directives(&String::from_utf8_lossy(value.as_bytes()))).reduce(Self::and)
    }

    fn of_directives(value: &str) -> Self {
        let directives = value.split(',').map(|directive| {
            let (name, argument) = directive.split_once('=').unwrap_or((directive, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "no-store" => Self::Never,
                // That of some headers only (`no-cache="set-cookie"`) is taken for that of the whole.
                "no-cache" => Self::AtMost(Duration::ZERO),
                "max-age" => Self::AtMost(seconds(argument).unwrap_or_default()),
                _ => Self::AsConfigured,
            }
        });
        directives.fold(Self::AsConfigured, Self::and)
    }

    /// The stricter of the two.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::AtMost(one), Self::AtMost(other)) => Self::AtMost(one.min(other)),
            (Self::AsConfigured, other) => other,
            (one, Self::AsConfigured) => one,
        }
    }

    /// What is left of it for an answer that was made so long ago.
    pub(crate) fn after(self, age: Duration) -> Self {
        match self {
            Self::AtMost(most) => Self::AtMost(most.saturating_sub(age)),
            other => other,
        }
    }
}

/// How long ago an answer was made when it came (`Age`), where a cache between here and the server says so.
pub(crate) fn age(headers: &HeaderMap) -> Duration {
    let ages = headers.get_all(AGE).iter().filter_map(|value| seconds(value.to_str().ok()?));
    ages.max().unwrap_or_default()
}

/// A number of seconds, of whatever size. What is none says nothing good of what it stands for.
fn seconds(text: &str) -> Option<Duration> {
    let digits = text.trim().trim_matches('"');
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // More than fits is as good as for ever.
    Some(Duration::from_secs(digits.parse::<u32>().unwrap_or(u32::MAX).into()))
}

#[cfg(test)]
mod tests;

//! Settings of the server: its certificate, the models and skills behind the vendor's names, and its limits.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Deserialize;

/// What clients of the server may name. If two layers have the same name, the upper one's is used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, expecting = "a table")]
pub struct ServeSettings {
    /// The model for each pattern of names. In a pattern, `*` matches any text. If several patterns match, the one with
    /// the most other characters is used.
    pub models: BTreeMap<String, String>,
    /// The directory of each skill that clients can use under a name of the vendor's.
    pub skills: BTreeMap<String, PathBuf>,
    /// How many requests a minute each key may make. `None` sets no limit.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Whether agents may use MCP servers with private addresses, such as `localhost`. `None` means that they may not.
    pub private_mcp_servers: Option<bool>,
    /// The PEM file of the certificate and its chain. It needs a private key. `None` means that the server does not use
    /// TLS.
    pub certificate: Option<PathBuf>,
    /// The PEM file of the certificate's private key.
    pub private_key: Option<PathBuf>,
}

impl ServeSettings {
    /// Merges these settings over `lower`.
    #[must_use]
    pub fn merged_over(self, lower: Self) -> Self {
        let Self {
            mut models,
            mut skills,
            requests_per_minute,
            private_mcp_servers,
            certificate,
            private_key,
        } = lower;
        models.extend(self.models);
        skills.extend(self.skills);
        let requests_per_minute = self.requests_per_minute.or(requests_per_minute);
        let private_mcp_servers = self.private_mcp_servers.or(private_mcp_servers);
        // A key belongs to its certificate. So both come from the same layer.
        let (certificate, private_key) = match self.certificate {
            Some(own) => (Some(own), self.private_key),
            None => (certificate, private_key),
        };
        Self { models, skills, requests_per_minute, private_mcp_servers, certificate, private_key }
    }

    /// Checks the values.
    pub(crate) fn check(&self) -> Result<(), String> {
        match (&self.certificate, &self.private_key) {
            (Some(_), None) => return Err("`certificate` needs a `private_key`".to_owned()),
            (None, Some(_)) => return Err("`private_key` needs a `certificate`".to_owned()),
            _ => {}
        }
        let mut files = self.certificate.iter().chain(&self.private_key);
        if files.any(is_blank) {
            return Err("`certificate` and `private_key` must be names of files".to_owned());
        }
        if self.models.iter().any(|(name, model)| is_blank(name) || is_blank(model)) {
            return Err("`models` has an empty name or value".to_owned());
        }
        if self.skills.iter().any(|(name, dir)| is_blank(name) || is_blank(dir)) {
            return Err("`skills` has an empty name or value".to_owned());
        }
        Ok(())
    }

    /// The configured model for the requested `name`; `None` if no pattern matches.
    #[must_use]
    pub fn model(&self, name: &str) -> Option<&str> {
        let fitting = self.models.iter().filter(|(pattern, _)| fits(pattern, name));
        fitting.max_by_key(|(pattern, _)| literal_length(pattern)).map(|(_, model)| model.as_str())
    }
}

fn is_blank(text: impl AsRef<OsStr>) -> bool {
    text.as_ref().to_string_lossy().trim().is_empty()
}

/// How many characters of a pattern are literal. A pattern without `*` matches exactly, and takes precedence over all
/// others.
fn literal_length(pattern: &str) -> usize {
    if pattern.contains('*') { pattern.chars().filter(|char| *char != '*').count() } else { usize::MAX }
}

/// Whether `name` matches `pattern`, in which `*` matches any text.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_exact_pattern_wins() {
        let text =
            "[models]\n\"*\" = 'small'\n\"claude-*\" = 'big'\n\"claude-*-5\" = 'five'\nclaude-x = 'exact'\n";
        let serve: ServeSettings = toml::from_str(text).unwrap();
        for (name, model) in [
            ("gpt", "small"),
            ("", "small"),
            ("claude-", "big"),
            ("claude-opus-5", "five"),
            ("claude-5", "big"),
            ("claude-opus-5-5", "five"),
            ("claude-x", "exact"),
            ("aclaude-x", "small"),
        ] {
            assert_eq!(serve.model(name), Some(model), "{name}");
        }
        assert_eq!(ServeSettings::default().model("gpt"), None);
        assert!(
            fits("a*b*c", "abc") && fits("a**c", "ac") && !fits("a*a", "a") && !fits("", "a") && fits("", "")
        );
    }

    #[test]
    fn mistakes_are_told() {
        for (text, part) in [
            ("certificate = 'c'", "`certificate` needs a `private_key`"),
            ("private_key = 'k'", "`private_key` needs a `certificate`"),
            ("certificate = ' '\nprivate_key = 'k'", "must be names of files"),
            ("certificate = 1", "expected path string"),
            ("models = 1", "expected a map"),
            ("requests_per_minute = 0", "expected a nonzero u32"),
            ("[models]\na = 1", "expected a string"),
            ("[skills]\na = ' '", "`skills` has an empty name or value"),
        ] {
            let read = toml::from_str::<ServeSettings>(text).map_err(|error| error.to_string());
            let error = read.and_then(|serve| serve.check()).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

//! Settings of the server: its certificate, the models and skills behind the vendor's names, and its limits.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::config::keys;

/// What clients of the server may name. If two layers have the same name, the upper one's is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServeSettings {
    /// The model for each pattern of names. In a pattern, `*` matches any text. If several patterns match, the one with
    /// the most other characters is used.
    pub models: BTreeMap<String, String>,
    /// The folder of each skill that clients can use under a name of the vendor's.
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

    /// The configured model for the requested `name`; `None` if no pattern matches.
    #[must_use]
    pub fn model(&self, name: &str) -> Option<&str> {
        let fitting = self.models.iter().filter(|(pattern, _)| fits(pattern, name));
        fitting.max_by_key(|(pattern, _)| literal_length(pattern)).map(|(_, model)| model.as_str())
    }
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

/// Parses the table `[serve]` of the file. Relative paths in it are relative to `folder`.
pub(crate) fn parse(table: &Table, folder: &Path) -> Result<ServeSettings, String> {
    keys::check(table, "serve")?;
    let place = |path: &str| {
        let path = PathBuf::from(path);
        if path.starts_with("~") { path } else { folder.join(path) }
    };
    let file = |key: &str| match table.get(key) {
        None => Ok(None),
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(place(text))),
        Some(_) => Err(format!("`{key}` must be the name of a file")),
    };
    let (certificate, private_key) = (file("certificate")?, file("private_key")?);
    match (&certificate, &private_key) {
        (Some(_), None) => return Err("`certificate` needs a `private_key`".to_owned()),
        (None, Some(_)) => return Err("`private_key` needs a `certificate`".to_owned()),
        _ => {}
    }
    Ok(ServeSettings {
        models: texts(table, "models")?.map(|(name, model)| (name.clone(), model.clone())).collect(),
        skills: texts(table, "skills")?.map(|(name, path)| (name.clone(), place(path))).collect(),
        requests_per_minute: table.get("requests_per_minute").map(requests).transpose()?,
        private_mcp_servers: table.get("private_mcp_servers").map(flag).transpose()?,
        certificate,
        private_key,
    })
}

/// A number of requests, at least one.
fn requests(value: &Value) -> Result<NonZeroU32, String> {
    let number = value.as_integer().and_then(|number| u32::try_from(number).ok()).and_then(NonZeroU32::new);
    number.ok_or_else(|| "`requests_per_minute` must be a whole number of at least 1".to_owned())
}

/// The value of `private_mcp_servers`.
fn flag(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "`private_mcp_servers` must be `true` or `false`".to_owned())
}

/// The text values of a table, by name.
fn texts<'t>(table: &'t Table, key: &str) -> Result<impl Iterator<Item = (&'t String, &'t String)>, String> {
    let members = match table.get(key) {
        None => Vec::new(),
        Some(Value::Table(members)) => members.iter().collect(),
        Some(other) => return Err(format!("`{key}` must be a table, not a {}", other.type_str())),
    };
    let text = |(name, value): (&'t String, &'t Value)| match value {
        Value::String(text) if !name.trim().is_empty() && !text.trim().is_empty() => Ok((name, text)),
        Value::String(_) => Err(format!("`{key}` has an empty name or value")),
        other => Err(format!("`{key}`: `{name}` must be a text, not a {}", other.type_str())),
    };
    Ok(members.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_exact_pattern_wins() {
        let text =
            "[models]\n\"*\" = 'small'\n\"claude-*\" = 'big'\n\"claude-*-5\" = 'five'\nclaude-x = 'exact'\n";
        let serve = parse(&toml::from_str(text).unwrap(), Path::new("/etc")).unwrap();
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
    fn folders_start_at_that_of_the_file_and_mistakes_are_told() {
        let read = |text: &str| parse(&toml::from_str(text).unwrap(), Path::new("/etc/conjure"));
        let serve = read("[skills]\nxlsx = 'skills/xlsx'\npdf = '~/pdf'\n").unwrap();
        assert_eq!(serve.skills["xlsx"], Path::new("/etc/conjure/skills/xlsx"));
        assert_eq!(serve.skills["pdf"], Path::new("~/pdf"));
        let serve = read("certificate = 'tls/cert.pem'\nprivate_key = '/etc/key.pem'").unwrap();
        assert_eq!(serve.certificate.as_deref(), Some(Path::new("/etc/conjure/tls/cert.pem")));
        assert_eq!(serve.private_key.as_deref(), Some(Path::new("/etc/key.pem")));
        for (text, part) in [
            ("model = 1", "there is no `model`, did you mean `models`?"),
            ("certificate = 'c'", "`certificate` needs a `private_key`"),
            ("private_key = 'k'", "`private_key` needs a `certificate`"),
            ("certificate = 1", "`certificate` must be the name of a file"),
            ("models = 1", "`models` must be a table"),
            ("requests_per_minute = 0", "a whole number of at least 1"),
            ("[models]\na = 1", "`models`: `a` must be a text, not a integer"),
            ("[skills]\na = ' '", "`skills` has an empty name or value"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

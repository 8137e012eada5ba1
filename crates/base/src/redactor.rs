//! Keeps secrets out of what leaves: known secret values are replaced by a mark that names them.

use std::borrow::Cow;
use std::fmt;

/// Values shorter than this are not searched for: replacing every `1` or `on` would destroy the text and
/// hide nothing.
const SHORTEST_SECRET: usize = 4;

/// Replaces known secret values in text and bytes by `[REDACTED:NAME]`.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Longest value first, so that a secret that contains another is replaced whole.
    secrets: Vec<(String, String)>,
}

impl Redactor {
    /// A redactor for `(name, value)` pairs. Values of fewer than four bytes are left out.
    pub fn new<N: Into<String>, V: Into<String>>(secrets: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut secrets: Vec<(String, String)> = secrets
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .filter(|(_, value)| value.len() >= SHORTEST_SECRET)
            .collect();
        secrets.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.cmp(b)));
        Self { secrets }
    }

    /// The text without the secrets; borrowed when there was none in it.
    #[must_use]
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut result = Cow::Borrowed(text);
        for (name, value) in &self.secrets {
            if result.contains(value.as_str()) {
                result = Cow::Owned(result.replace(value.as_str(), &format!("[REDACTED:{name}]")));
            }
        }
        result
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.secrets.iter().map(|(name, _)| name)).finish()
    }
}

/// Whether a variable of this name usually holds a secret (`API_KEY`, `DB_PASSWORD`, `GITHUB_TOKEN` ...).
#[must_use]
pub fn looks_sensitive(name: &str) -> bool {
    const WORDS: [&str; 8] =
        ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "CREDENTIALS", "AUTH"];
    name.to_uppercase().split(|c: char| !c.is_alphanumeric()).any(|word| {
        WORDS.contains(&word)
            || ["APIKEY", "PASSPHRASE", "PRIVATEKEY"].iter().any(|tail| word.ends_with(tail))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_secret_is_replaced_whole() {
        let redactor = Redactor::new([("SHORT", "abcd"), ("LONG", "xxabcdxx")]);
        assert_eq!(redactor.redact("1 xxabcdxx 2 abcd"), "1 [REDACTED:LONG] 2 [REDACTED:SHORT]");
    }

    #[test]
    fn text_without_secrets_is_not_copied_and_short_values_are_left_alone() {
        let redactor = Redactor::new([("A", "on"), ("B", "abcd")]);
        assert!(matches!(redactor.redact("on and on"), Cow::Borrowed("on and on")));
    }

    #[test]
    fn debug_shows_names_only() {
        let text = format!("{:?}", Redactor::new([("API_KEY", "s3cr3t-value")]));
        assert_eq!(text, r#"["API_KEY"]"#);
    }

    #[test]
    fn names_of_secrets_are_known_and_others_are_not() {
        for name in ["ANTHROPIC_API_KEY", "github-token", "DB_PASSWORD", "MY_APIKEY", "aws.secret"] {
            assert!(looks_sensitive(name), "{name}");
        }
        for name in ["PATH", "KEYBOARD", "MONKEY", "TOKENIZERS_PARALLELISM", "LANG"] {
            assert!(!looks_sensitive(name), "{name}");
        }
    }
}

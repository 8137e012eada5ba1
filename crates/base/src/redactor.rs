//! Replaces known secret values in outgoing text with `[REDACTED:NAME]`.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::secret_detection::{MIN_PART_BYTES, secrets_in_value};

/// The length in bytes from which a value is redacted. Replacing every `1` or `on` would destroy the text and hide nothing.
pub const MIN_SECRET_BYTES: usize = 4;

/// Replaces known secret values in text with `[REDACTED:NAME]`. Clones share their secrets, also those that are added later by
/// [`Redactor::extend`].
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Arc<RwLock<Secrets>>,
}

/// Names and values. The longest value comes first, so that a secret that contains another is replaced as one.
type Secrets = Arc<[(String, String)]>;

impl Redactor {
    /// A redactor for `(name, value)` pairs. Values of fewer than four bytes are left out.
    pub fn new<N: Into<String>, V: Into<String>>(secrets: impl IntoIterator<Item = (N, V)>) -> Self {
        let secrets = secrets
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .flat_map(split_lines)
            .flat_map(split_password)
            .filter(|(_, value)| value.len() >= MIN_SECRET_BYTES)
            .collect();
        Self { secrets: Arc::new(RwLock::new(sorted(secrets))) }
    }

    /// Adds the secrets of `other` to this redactor and all its clones.
    pub fn extend(&self, other: &Self) {
        let learned = other.secrets();
        let mut secrets = self.secrets.write().unwrap_or_else(PoisonError::into_inner);
        *secrets = sorted(secrets.iter().chain(learned.iter()).cloned().collect());
    }

    /// The secrets that are known now. The lock is not held while a text is searched.
    fn secrets(&self) -> Secrets {
        Arc::clone(&self.secrets.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The text without the secrets; borrowed when it contains none.
    #[must_use]
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut result = Cow::Borrowed(text);
        for (name, value) in &*self.secrets() {
            if result.contains(value.as_str()) {
                result = Cow::Owned(result.replace(value.as_str(), &placeholder(name)));
            }
        }
        result
    }

    /// The start of a longer text, without the secrets. A secret that the cut has left incomplete at the end is replaced, too.
    #[must_use]
    pub fn redact_head(&self, head: &str) -> String {
        let mut text = self.redact(head).into_owned();
        let secrets = self.secrets();
        let cut = secrets.iter().filter_map(|(name, value)| {
            let parts =
                (MIN_SECRET_BYTES..value.len()).rev().filter(|length| value.is_char_boundary(*length));
            parts
                .map(|length| &value[..length])
                .find(|part| text.ends_with(part))
                .map(|part| (part.len(), name))
        });
        if let Some((length, name)) = cut.max() {
            text.truncate(text.len() - length);
            text.push_str(&placeholder(name));
        }
        text
    }

    /// The end of a longer text, without the secrets. A secret that the cut has left incomplete at the start is replaced, too.
    #[must_use]
    pub fn redact_tail(&self, tail: &str) -> String {
        let text = self.redact(tail);
        let secrets = self.secrets();
        let cut = secrets.iter().filter_map(|(name, value)| {
            let parts = (1..value.len().saturating_sub(MIN_SECRET_BYTES - 1))
                .filter(|at| value.is_char_boundary(*at));
            parts.map(|at| &value[at..]).find(|part| text.starts_with(part)).map(|part| (part.len(), name))
        });
        match cut.max() {
            Some((length, name)) => format!("{}{}", placeholder(name), &text[length..]),
            None => text.into_owned(),
        }
    }

    /// The number of bytes at the end of a text that may be the start of a secret. A caller that shows a text while
    /// it is still being written must not show these bytes yet.
    #[must_use]
    pub fn partial_secret_len(&self, text: &str) -> usize {
        let beginning = |value: &str| {
            (1..value.len())
                .rev()
                .filter(|length| value.is_char_boundary(*length))
                .find(|length| text.ends_with(&value[..*length]))
        };
        self.secrets().iter().filter_map(|(_, value)| beginning(value)).max().unwrap_or(0)
    }
}

fn sorted(mut secrets: Vec<(String, String)>) -> Secrets {
    secrets.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.cmp(b)));
    secrets.dedup();
    secrets.into()
}

fn placeholder(name: &str) -> String {
    format!("[REDACTED:{name}]")
}

/// Splits a secret of several lines or a list of several keys: returns the secret and its long parts.
fn split_lines((name, value): (String, String)) -> Vec<(String, String)> {
    let is_list = !value.contains(['"', '=', ':', '/']);
    let items = value.split(',').filter(|_| is_list);
    let parts = value.lines().chain(items).map(str::trim);
    let parts = parts.filter(|part| part.len() >= MIN_PART_BYTES && part.len() < value.len());
    let mut all: Vec<_> = parts.map(|part| (name.clone(), part.to_owned())).collect();
    all.push((name, value));
    all
}

/// Returns a secret and the secrets in it, because programs print and use a password alone.
fn split_password((name, value): (String, String)) -> Vec<(String, String)> {
    let parts = secrets_in_value(&value);
    parts.into_iter().map(|part| (name.clone(), part)).chain([(name.clone(), value)]).collect()
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secrets = self.secrets();
        let mut names: Vec<&str> = secrets.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        f.debug_list().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret_detection::is_sensitive_variable;

    #[test]
    fn a_secret_that_contains_another_is_replaced_as_one() {
        let redactor = Redactor::new([("SHORT", "abcd"), ("LONG", "xxabcdxx")]);
        assert_eq!(redactor.redact("1 xxabcdxx 2 abcd"), "1 [REDACTED:LONG] 2 [REDACTED:SHORT]");
    }

    #[test]
    fn clones_share_added_secrets() {
        let redactor = Redactor::new([("SHORT", "abcd")]);
        let clone = redactor.clone();
        for _ in 0..2 {
            redactor.extend(&Redactor::new([("LONG", "xxabcdxx"), ("SHORT", "abcd")]));
        }
        redactor.extend(&clone);
        assert_eq!(clone.redact("1 xxabcdxx 2 abcd"), "1 [REDACTED:LONG] 2 [REDACTED:SHORT]");
        assert_eq!(format!("{:?}", clone.secrets().len()), "2");
    }

    #[test]
    fn text_without_secrets_is_not_copied_and_short_values_stay() {
        let redactor = Redactor::new([("A", "on"), ("B", "abcd")]);
        assert!(matches!(redactor.redact("on and on"), Cow::Borrowed("on and on")));
    }

    #[test]
    fn a_secret_that_a_cut_left_incomplete_is_redacted() {
        let redactor = Redactor::new([("KEY", "s3cr3t-välue")]);
        assert_eq!(redactor.redact_head("a s3cr3t-välue b s3cr3t-"), "a [REDACTED:KEY] b [REDACTED:KEY]");
        assert_eq!(redactor.redact_head("b s3cr3t-vä"), "b [REDACTED:KEY]");
        assert_eq!(redactor.redact_tail("3t-välue b s3cr3t-välue"), "[REDACTED:KEY] b [REDACTED:KEY]");
        assert_eq!(redactor.redact_tail("älue b"), "[REDACTED:KEY] b");
        // Three bytes hide nothing and occur everywhere.
        assert_eq!(redactor.redact_head("b s3c"), "b s3c");
        assert_eq!(redactor.redact_tail("lue b"), "lue b");
    }

    #[test]
    fn the_length_of_a_partial_secret_is_found() {
        let redactor = Redactor::new([("KEY", "s3cr3t-välue"), ("OTHER", "t-vx")]);
        for (text, length) in
            [("", 0), ("a", 0), ("a s", 1), ("a s3cr3t-v", 8), ("s3cr3t-vä", 10), ("a t-", 2)]
        {
            assert_eq!(redactor.partial_secret_len(text), length, "{text}");
        }
    }

    #[test]
    fn the_lines_of_a_long_secret_are_secrets() {
        let redactor =
            Redactor::new([("PEM", "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END KEY-----\n")]);
        assert_eq!(redactor.redact("  2\tMIIEvQIBADANBgkqhkiG9w0B\n"), "  2\t[REDACTED:PEM]\n");
    }

    #[test]
    fn debug_shows_names_only() {
        let text = format!("{:?}", Redactor::new([("API_KEY", "s3cr3t-value")]));
        assert_eq!(text, r#"["API_KEY"]"#);
    }

    #[test]
    fn a_url_with_a_password_is_a_secret_and_so_is_the_password_alone() {
        for url in ["postgres://app:s3cr:t@db/main", "redis://:s3cr:t@cache:6379/0?x#y"] {
            assert!(is_sensitive_variable("ANY", url), "{url}");
            let redactor = Redactor::new([("DATABASE_URL", url)]);
            let redacted = redactor.redact("password s3cr:t").into_owned() + &redactor.redact(url);
            assert_eq!(redacted, "password [REDACTED:DATABASE_URL][REDACTED:DATABASE_URL]");
        }
        for other in [
            "postgres://app@db/main",
            "https://user@host",
            "https://x:@y",
            "a:b@c",
            "://",
            "https://h/p?q=a:b@c",
            "http://h:8080/a@b",
            "http://[::1]:80/a@b",
            "http://h:/a@b",
            "say password= to it",
        ] {
            assert!(!is_sensitive_variable("ANY", other), "{other}");
        }
    }

    #[test]
    fn a_part_of_a_value_that_is_a_secret_is_redacted_alone() {
        for (value, secret) in [
            ("https://ghp_0123456789abcdef@host/a.git", "ghp_0123456789abcdef"),
            ("https://ghp_0123456789abcdef:x-oauth-basic@host", "ghp_0123456789abcdef"),
            ("postgres://u:pa/ss@db/main?mail=a@b", "pa/ss"),
            ("redis://:/abc@host", "/abc"),
            ("postgres://u:p%40ss%2Fw@db", "p%40ss%2Fw"),
            ("postgres://u:p%40ss%2Fw@db", "p@ss/w"),
            ("host=db Password=s3cr3t dbname=a", "s3cr3t"),
            ("host=db password='s3 cr3t' dbname=a", "s3 cr3t"),
            ("cache:6380,password=s3cr3t,ssl=True", "s3cr3t"),
            ("Server=db;UID=sa;PWD=s3cr3t;", "s3cr3t"),
            ("jdbc:x://h/d?user=a&password=s3cr3t&b=c", "s3cr3t"),
        ] {
            assert!(is_sensitive_variable("ANY", value), "{value}");
            assert_eq!(
                Redactor::new([("A", value)]).redact(&format!("<{secret}>")),
                "<[REDACTED:A]>",
                "{value}"
            );
        }
        let keys = Redactor::new([("API_KEYS", "first-0123456789, second-0123456789")]);
        assert_eq!(keys.redact("<second-0123456789>"), "<[REDACTED:API_KEYS]>");
        let address = Redactor::new([("CACHE", "cache.example.com:6380,password=s3cr3t,ssl=True")]);
        assert_eq!(address.redact("<cache.example.com:6380>"), "<cache.example.com:6380>");
    }
}

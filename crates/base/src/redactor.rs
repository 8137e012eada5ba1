//! Replaces known secret values in outgoing text with `[REDACTED:NAME]`.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use percent_encoding::percent_decode_str;

/// The length in bytes from which a value is redacted. Replacing every `1` or `on` would destroy the text and hide nothing.
pub const MIN_SECRET_BYTES: usize = 4;

/// The length in bytes from which one line of a secret (such as a private key) is redacted by itself. Tools show
/// files line by line.
const MIN_LINE_BYTES: usize = 16;

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
    let parts = parts.filter(|part| part.len() >= MIN_LINE_BYTES && part.len() < value.len());
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

/// Whether a variable most likely holds a secret. Its name says so (`API_KEY`, `DB_PASSWORD`, `githubToken2`), or its value has a
/// password: in a URL, or after `password=`.
#[must_use]
pub fn is_sensitive_variable(name: &str, value: &str) -> bool {
    is_sensitive_name(name, value) || !secrets_in_value(value).is_empty()
}

/// The passwords and tokens in a value, as they are written and without percent-encoding.
fn secrets_in_value(value: &str) -> Vec<String> {
    let mut secrets: Vec<String> = Vec::new();
    for secret in url_secrets(value) {
        secrets.extend(percent_decode_str(secret).decode_utf8().ok().map(Cow::into_owned));
        secrets.push(secret.to_owned());
    }
    let lower = value.to_ascii_lowercase();
    let fields = ["password=", ";pwd="].into_iter().flat_map(|field| lower.match_indices(field));
    for (position, field) in fields {
        let rest = &value[position + field.len()..];
        let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let secret = match quote {
            Some(quote) => rest[1..].split(quote).next(),
            None => rest.split(|c: char| c.is_whitespace() || matches!(c, ';' | '&')).next(),
        };
        // A comma may separate fields or belong to the password.
        let before_comma = secret.and_then(|secret| secret.split(',').next());
        secrets.extend(secret.into_iter().chain(before_comma).map(str::to_owned));
    }
    secrets.retain(|secret| !secret.is_empty());
    secrets
}

/// The password in a URL, and its user if that is long enough to be a token.
fn url_secrets(value: &str) -> Vec<&str> {
    let Some((_, rest)) = value.split_once("://") else { return Vec::new() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, password) = match (authority.rsplit_once('@'), authority.split_once(':')) {
        (Some((user, _)), _) => user.split_once(':').unwrap_or((user, "")),
        // What follows the colon is no port, so it is the start of a password with a `/`, `?` or `#`.
        (None, Some((user, start))) if !user.starts_with('[') => {
            let is_port = !user.is_empty() && start.bytes().all(|byte| byte.is_ascii_digit());
            let password = rest[user.len() + 1..].split_once('@').filter(|_| !is_port);
            password.map_or(("", ""), |(password, _)| (user, password))
        }
        _ => ("", ""),
    };
    let is_token = user.len() >= MIN_LINE_BYTES && user.bytes().any(|byte| byte.is_ascii_digit());
    [password].into_iter().chain(is_token.then_some(user)).filter(|secret| !secret.is_empty()).collect()
}

fn is_sensitive_name(name: &str, value: &str) -> bool {
    // Variables of shells and desktops; their values are ordinary words.
    const HARMLESS: [&str; 7] = [
        "DESKTOP_SESSION",
        "PWD",
        "SESSION_MANAGER",
        "XDG_SESSION_CLASS",
        "XDG_SESSION_DESKTOP",
        "XDG_SESSION_ID",
        "XDG_SESSION_TYPE",
    ];
    // The value of `MAX_TOKENS` is a setting.
    let is_setting = value.bytes().all(|byte| byte.is_ascii_digit()) || matches!(value, "true" | "false");
    let is_sensitive = |word: &str| {
        let word = word.to_uppercase();
        // `AUTH0` is the name of a service.
        let word = if word == "AUTH0" { "" } else { word.trim_end_matches(|c: char| c.is_ascii_digit()) };
        let is_plural = || word.strip_suffix('S').is_some_and(is_sensitive_word);
        is_sensitive_word(word)
            || (word == "WEBHOOK" && value.contains("://"))
            || (!is_setting && is_plural())
    };
    !HARMLESS.contains(&name.to_uppercase().as_str())
        && name
            .split(|c: char| !c.is_alphanumeric())
            .any(|words| is_sensitive(words) || camel_case_words(words).into_iter().any(is_sensitive))
}

/// The words of a name in camel case: `API` and `Key` of `APIKey`.
fn camel_case_words(name: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut start, mut before) = (0, None);
    let mut chars = name.char_indices().peekable();
    while let Some((position, c)) = chars.next() {
        let is_followed_by_lower = chars.peek().is_some_and(|(_, next)| next.is_lowercase());
        if c.is_uppercase()
            && before.is_some_and(|before: char| !before.is_uppercase() || is_followed_by_lower)
        {
            words.push(&name[start..position]);
            start = position;
        }
        before = Some(c);
    }
    words.push(&name[start..]);
    words
}

/// Whether a word in upper case names a secret.
fn is_sensitive_word(word: &str) -> bool {
    const WORDS: [&str; 15] = [
        "AUTH",
        "BEARER",
        "COOKIE",
        "CRED",
        "CREDENTIAL",
        "DSN",
        "JWT",
        "KEY",
        "PASS",
        "PAT",
        "PHPSESSID",
        "PWD",
        "SESSID",
        "SESSION",
        "SESSIONID",
    ];
    // No ordinary word ends in these.
    const SUFFIXES: [&str; 11] = [
        "ACCESSKEY",
        "APIKEY",
        "ENCRYPTIONKEY",
        "PASSPHRASE",
        "PASSWD",
        "PASSWORD",
        "PRIVATEKEY",
        "SECRET",
        "SECRETKEY",
        "SIGNINGKEY",
        "TOKEN",
    ];
    WORDS.contains(&word) || SUFFIXES.iter().any(|suffix| word.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn sensitive_names_are_recognised() {
        for name in [
            "ANTHROPIC_API_KEY",
            "github-token",
            "DB_PASSWORD",
            "MY_APIKEY",
            "aws.secret",
            "PGPASSWORD",
            "SMTP_PASS",
            "AUTHTOKEN",
            "clientSecret",
            "GITHUB_PAT",
            "COOKIE",
            "app_jwt",
            "SESSION",
            "SESSION_ID",
            "DB_PWD",
            "API_KEYS",
            "GITHUB_TOKEN2",
            "secretKey",
            "APIKey",
            "AWS_SECRETKEY",
            "ACCESSKEY1",
            "DB_DSN",
            "GCP_CREDS",
            "BEARER",
        ] {
            assert!(is_sensitive_variable(name, "a"), "{name}");
        }
        assert!(is_sensitive_variable("SLACK_WEBHOOK_URL", "https://hooks.example/a"));
        for name in [
            "PATH",
            "KEYBOARD",
            "MONKEY",
            "TOKENIZERS_PARALLELISM",
            "LANG",
            "COMPASS",
            "PWD",
            "SPAT",
            "XDG_SESSION_TYPE",
            "HOME",
            "TURKEY2",
            "hotKeyboard",
            "GitHubPath",
        ] {
            assert!(!is_sensitive_variable(name, "https://example.com/a:b@c"), "{name}");
        }
        for (name, value) in [
            ("MAX_OUTPUT_TOKENS", "32000"),
            ("WEBHOOK_ENABLED", "true"),
            ("WEBHOOK_PATH", "/hooks"),
            ("AUTH0_DOMAIN", "localhost"),
            ("KEYS", ""),
        ] {
            assert!(!is_sensitive_variable(name, value), "{name}");
        }
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

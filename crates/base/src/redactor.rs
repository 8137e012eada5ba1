//! Replaces known secret values in outgoing text with `[REDACTED:NAME]`, also where they are written as in JSON, in a URL or in base64. A
//! program that wants to hide a secret in its output can write it in other ways.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::secret_detection::{MIN_PART_BYTES, secrets_in_value};

/// The length in bytes from which a value is redacted. Replacing every `1` or `on` would destroy the text and hide nothing.
pub const MIN_SECRET_BYTES: usize = 4;

/// The characters that are written as they are in every part of a URL, besides letters and digits.
const IN_URL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The length from which a part of base64 is redacted. A shorter one occurs by chance.
const MIN_BASE64_BYTES: usize = 8;

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
            .flat_map(with_encodings)
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

/// Returns a secret and its encodings, because programs print variables as JSON, URLs as they are requested, and headers with passwords in
/// base64.
fn with_encodings((name, value): (String, String)) -> Vec<(String, String)> {
    let mut all = vec![in_json(&value), utf8_percent_encode(&value, IN_URL).to_string()];
    for part in (0..3).map(|offset| in_base64(&value, offset)).filter(|part| part.len() >= MIN_BASE64_BYTES) {
        all.push(part.replace('+', "-").replace('/', "_"));
        all.push(part);
    }
    all.push(value);
    all.into_iter().map(|value| (name.clone(), value)).collect()
}

/// The content of a JSON string.
fn in_json(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\0'..='\u{1f}' => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => text.push(c),
        }
    }
    text
}

/// The characters of base64 that depend on nothing but the value, if `offset` bytes precede it in its group of three.
fn in_base64(value: &str, offset: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = [0, 0].into_iter().take(offset).chain(value.bytes()).collect();
    let bits = |place: usize| bytes.get(place).map_or(0, |byte| u32::from(*byte));
    // Six bits at a time. The first characters depend on the bytes before the value, too, and an incomplete last one on those behind it.
    let first = (offset * 8).div_ceil(6);
    let characters = (first..bytes.len() * 8 / 6).map(|index| {
        let (byte, shift) = (index * 6 / 8, index * 6 % 8);
        let window = bits(byte) << 8 | bits(byte + 1);
        char::from(ALPHABET[(window >> (10 - shift) & 63) as usize])
    });
    characters.collect()
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
        let once = Redactor::new([("SHORT", "abcd"), ("LONG", "xxabcdxx")]);
        assert_eq!(clone.secrets(), once.secrets());
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
    fn a_secret_is_redacted_as_json_urls_and_base64_write_it() {
        let redactor = Redactor::new([("KEY", "s3\"cr\\et+/\u{1}ü?value")]);
        for (written, expected) in [
            (r#""s3\"cr\\et+/\u0001ü?value""#, r#""[REDACTED:KEY]""#),
            ("k=s3%22cr%5Cet%2B%2F%01%C3%BC%3Fvalue", "k=[REDACTED:KEY]"),
            ("czMiY3JcZXQrLwHDvD92YWx1ZQ==", "[REDACTED:KEY]Q=="),
            // After a colon, in the alphabets of base64 and of its form for URLs.
            ("OnMzImNyXGV0Ky8Bw7w/dmFsdWU=", "On[REDACTED:KEY]U="),
            ("OnMzImNyXGV0Ky8Bw7w_dmFsdWU", "On[REDACTED:KEY]U"),
        ] {
            assert_eq!(redactor.redact(written), expected);
        }
    }

    #[test]
    fn a_password_is_redacted_in_the_base64_of_a_header() {
        let redactor = Redactor::new([("PASSWORD", "hunter2-abc")]);
        for (written, expected) in [
            // `hunter2-abc`, `a:hunter2-abc` and `ab:hunter2-abc` with what follows them.
            ("aHVudGVyMi1hYmM=", "[REDACTED:PASSWORD]M="),
            ("YTpodW50ZXIyLWFiYw==", "YTp[REDACTED:PASSWORD]w=="),
            ("YWI6aHVudGVyMi1hYmM=", "YWI6[REDACTED:PASSWORD]M="),
            ("Omh1bnRlcjItYWJj", "Om[REDACTED:PASSWORD]"),
        ] {
            assert_eq!(redactor.redact(written), expected, "{written}");
        }
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

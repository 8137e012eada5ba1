//! Finds secrets: says which variables hold one, and which parts of a value are one.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The length in bytes from which a part of a secret (a line of a private key, a key in a list, the user in a URL) is a secret by itself.
pub(crate) const MIN_PART_BYTES: usize = 16;

/// Whether a variable most likely holds a secret. Its name says so (`API_KEY`, `DB_PASSWORD`, `githubToken2`), or its value has a
/// password: in a URL, or after `password=`.
#[must_use]
pub fn is_sensitive_variable(name: &str, value: &str) -> bool {
    is_sensitive_name(name, value) || !secrets_in_value(value).is_empty()
}

/// The passwords and tokens in a value, as they are written and without percent-encoding.
pub(crate) fn secrets_in_value(value: &str) -> Vec<String> {
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
    let is_token = user.len() >= MIN_PART_BYTES && user.bytes().any(|byte| byte.is_ascii_digit());
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
    const WORDS: [&str; 16] = [
        "AUTH",
        "AUTHORIZATION",
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
            "AUTHORIZATION",
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
}

//! Which variables hold secrets, by their names and by their values.

/// A user name in a web address that is at least so long is a token: no person's name is. In bytes.
const SHORTEST_TOKEN: usize = 20;

/// Whether a variable of this name usually holds a secret (`API_KEY`, `DB_PASSWORD`, `GITHUB_PAT`, `SESSION_ID` ...).
#[must_use]
pub fn looks_sensitive(name: &str) -> bool {
    const WORDS: [&str; 8] =
        ["KEY", "PASS", "CREDENTIAL", "CREDENTIALS", "AUTH", "PAT", "SESSIONID", "SESSID"];
    // No usual word ends in these.
    const TAILS: [&str; 11] = [
        "APIKEY",
        "PASSPHRASE",
        "PRIVATEKEY",
        "PASSWORD",
        "PASSWD",
        "TOKEN",
        "SECRET",
        "COOKIE",
        "COOKIES",
        "JWT",
        "PHPSESSID",
    ];
    let name = name.to_uppercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    // The session of a desktop has an id and a type, and neither opens anything.
    let is_desktop = matches!(words.first(), Some(&("XDG" | "DESKTOP")));
    let names_session = matches!(words.as_slice(), [.., "SESSION"] | [.., "SESSION", "ID"]);
    words.iter().any(|word| WORDS.contains(word) || TAILS.iter().any(|tail| word.ends_with(tail)))
        || (names_session && !is_desktop)
}

/// What must not be told of the variable `name`: its whole value where the name says so, or where the value holds a URL with a
/// password; then also each password alone ([`url_secrets`]). Empty where the variable is no secret.
#[must_use]
pub fn variable_secrets(name: &str, value: &str) -> Vec<String> {
    let mut secrets = url_secrets(value);
    if !secrets.is_empty() || looks_sensitive(name) {
        secrets.insert(0, value.to_owned());
    }
    secrets
}

/// The secrets in all URLs that stand in a text, as they are written and as they are meant (`%40` is `@`): passwords before the
/// host, tokens in their place, and fields of the query whose names say so ([`looks_sensitive`]).
#[must_use]
pub fn url_secrets(text: &str) -> Vec<String> {
    let mut secrets = Vec::new();
    for (at, mark) in text.match_indices("://") {
        let scheme = text[..at].rsplit(|c: char| !is_of_scheme(c)).next().unwrap_or_default();
        let rest = &text[at + mark.len()..];
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`');
        let url = &rest[..rest.find(ends).unwrap_or(rest.len())];
        secrets.extend(password(scheme, url));
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let fields = query.split(['&', ';', '#']).filter_map(|field| field.split_once('='));
        secrets.extend(fields.filter(|(name, _)| looks_sensitive(name)).map(|(_, value)| value));
    }
    let meant = secrets.iter().map(|secret| percent_decoded(secret));
    let mut all: Vec<String> = meant.chain(secrets.iter().map(|secret| (*secret).to_owned())).collect();
    all.retain(|secret| !secret.is_empty());
    all.sort();
    all.dedup();
    all
}

fn is_of_scheme(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')
}

/// The password before the host of a URL, which is given without its scheme.
fn password<'u>(scheme: &str, url: &'u str) -> Option<&'u str> {
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    let user = match authority.rsplit_once('@') {
        Some((user, _)) => user,
        // A password with a `/` that nobody has escaped ends the authority early. What looks like a port is then none.
        None => match authority.split_once(':') {
            Some((host, port)) if !host.starts_with('[') && !port.bytes().all(|byte| byte.is_ascii_digit()) => {
                url.rsplit_once('@')?.0
            }
            _ => return None,
        },
    };
    match user.split_once(':') {
        // `https://TOKEN:x-oauth-basic@host` and `https://TOKEN:@host`.
        Some((token, "" | "x-oauth-basic")) => Some(token),
        Some((_, password)) => Some(password),
        None => {
            let is_token = scheme.to_ascii_lowercase().starts_with("http") && user.len() >= SHORTEST_TOKEN;
            is_token.then_some(user)
        }
    }
}

/// `%40` as `@`. What is no escape, or no UTF-8 then, stays as it is.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = tail.first_chunk::<2>().filter(|_| *first == b'%');
        let decoded = escaped.and_then(|digits| {
            let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
            u8::try_from(high? * 16 + low?).ok()
        });
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_and_others_are_not() {
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
            "pat",
            "COOKIE",
            "SESSION_COOKIE",
            "AUTH_COOKIES",
            "JWT",
            "USER_JWT",
            "SESSION",
            "ADMIN_SESSION",
            "SESSION_ID",
            "sessionid",
            "PHPSESSID",
            "AWS_SESSION_TOKEN",
        ] {
            assert!(looks_sensitive(name), "{name}");
        }
        for name in [
            "PATH",
            "KEYBOARD",
            "MONKEY",
            "TOKENIZERS_PARALLELISM",
            "LANG",
            "COMPASS",
            "PWD",
            "DATABASE_URL",
            "COMPAT",
            "PATTERN",
            "XDG_SESSION_ID",
            "DESKTOP_SESSION",
            "SESSION_TIMEOUT",
        ] {
            assert!(!looks_sensitive(name), "{name}");
        }
    }

    #[test]
    fn the_password_of_a_url_is_a_secret_whatever_the_variable_is_called() {
        for (url, secrets) in [
            ("postgres://app:s3cr3t@db:5432/x", &["s3cr3t"][..]),
            ("redis://:p%40ss@cache", &["p%40ss", "p@ss"]),
            ("mongodb+srv://a:p@ss:word@h1,h2/x", &["p@ss:word"]),
            ("postgres://app:sl/sh?x@db/x", &["sl/sh?x"]),
            ("jdbc:postgresql://db/x?user=app&password=hunter2&ssl=true", &["hunter2"]),
            ("https://a.example https://ada:pw-1@b.example/simple", &["pw-1"]),
            ("{\"url\":\"amqp://ada:pw-2@mq\"}", &["pw-2"]),
            ("https://ghp_0123456789abcdefghij@github.com/a/b", &["ghp_0123456789abcdefghij"]),
            ("https://tok-1234:x-oauth-basic@github.com/a/b", &["tok-1234"]),
            ("https://a.example:8443/@scope/package", &[]),
            ("https://a.example/?mail=ada@b.example", &[]),
            ("http://[::1]:8080/a@b", &[]),
            ("ssh://git@github.com/a/b", &[]),
            ("https://ada@github.com/a/b", &[]),
            ("postgres:///db?user=app", &[]),
            ("no://", &[]),
            ("plain text: a@b", &[]),
        ] {
            assert_eq!(url_secrets(url), secrets, "{url}");
        }
    }

    #[test]
    fn all_of_a_secret_variable_is_kept_back_and_nothing_of_another() {
        let url = "postgres://app:s3cr3t@db/x";
        assert_eq!(variable_secrets("DATABASE_URL", url), [url, "s3cr3t"]);
        assert_eq!(variable_secrets("API_KEY", "abcd"), ["abcd"]);
        assert!(variable_secrets("REGION", "north").is_empty());
        assert!(variable_secrets("DATABASE_URL", "postgres://db/x").is_empty());
    }

    #[test]
    fn what_is_no_escape_stays() {
        for (text, expected) in [("a%2", "a%2"), ("%zz%41", "%zzA"), ("%ff", "%ff"), ("ü%20", "ü ")] {
            assert_eq!(percent_decoded(text), expected);
        }
    }
}

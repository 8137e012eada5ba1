use super::*;
use crate::HttpClient;

const KEY: &str = "sk-canary-1234";

fn config(url: &str) -> HttpConfig {
    HttpConfig::new(url).with_key(SecretString::from(KEY), KeyHeader::Bearer)
}

#[test]
fn the_base_url_has_a_path_and_no_slash_at_its_end() {
    for (base, expected) in [
        ("https://api.example.com", "https://api.example.com/"),
        ("https://proxy.example/llm/v1/", "https://proxy.example/llm/v1"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1"),
        (" http://localhost:1 ", "http://localhost:1/"),
    ] {
        assert_eq!(config(base).service_url().unwrap().as_str(), expected);
    }
}

#[test]
fn insecure_or_invalid_base_urls_are_rejected() {
    for (base, expected) in [
        ("http://example.com", "the key would travel in plain text"),
        ("http://127.0.0.1.example.com", "plain text"),
        ("https://user:pass@example.com", "user name or password"),
        ("https://example.com?x=1", "it holds a query"),
        ("https://example.com#x", "it holds a fragment"),
        ("ftp://example.com", "only `https://`"),
        ("api.example.com", "write it like"),
        ("", "write it like"),
    ] {
        let error = config(base).service_url().unwrap_err();
        assert!(matches!(error, HttpConfigError::BaseUrl { .. }), "{base}");
        let error = error.to_string();
        assert!(error.contains(expected) && !error.contains("pass@"), "{base}: {error}");
    }
    let near = config("http://127.0.0.1:1").with_proxy("http://localhost:3128");
    assert!(near.service_url().is_ok());
    let distant = near.with_proxy("http://user:pass@proxy.example:3128");
    let error = distant.service_url().unwrap_err().to_string();
    assert!(error.contains("plain text") && !error.contains("pass@"), "{error}");
    assert!(distant.with_base_url("https://example.com").service_url().is_ok());
    assert!(config("http://example.com").with_plaintext(PlaintextPolicy::Anywhere).service_url().is_ok());
    let without_key = HttpConfig::new("http://example.com").service_url().unwrap_err().to_string();
    assert!(without_key.contains("requests would travel in plain text"), "{without_key}");
}

#[test]
fn an_invalid_key_is_rejected_without_being_shown() {
    for (key, expected) in [
        ("", "is empty"),
        ("two words", "holds a space"),
        ("line\n", "holds a line break"),
        ("a\r\nx-other: 1", "holds a line break"),
        ("schl\u{fc}ssel", "holds characters that no header can carry"),
        ("\u{0}", "holds characters that no header can carry"),
    ] {
        let config = HttpConfig::new("https://example.com").with_key(key.into(), KeyHeader::Bearer);
        let error = config.common_headers().unwrap_err();
        assert_eq!(error.to_string(), format!("the API key {expected}; check how it was copied"));
    }
}

#[test]
fn the_key_is_sent_in_the_configured_header() {
    for (header, name, expected) in [
        (KeyHeader::Bearer, "authorization", "Bearer sk-canary-1234"),
        (KeyHeader::Named("x-api-key"), "x-api-key", KEY),
        (KeyHeader::Named("api-key"), "api-key", KEY),
    ] {
        let headers = config("https://example.com").with_key_header(header).common_headers().unwrap();
        assert_eq!(headers.len(), 1);
        assert_eq!(headers[name], expected);
        assert!(headers[name].is_sensitive());
    }
    assert!(HttpConfig::new("https://example.com").common_headers().unwrap().is_empty());
}

#[test]
fn user_headers_are_sent_and_invalid_ones_are_named() {
    let base = config("https://example.com").with_wire_header("x-version", "1");
    let headers = base.clone().with_header("X-Version", "2".into()).with_header("X-Title", "a b".into());
    let headers = headers.common_headers().unwrap();
    assert_eq!(
        (&headers["x-version"], &headers["x-title"]),
        (&"2".parse().unwrap(), &"a b".parse().unwrap())
    );
    for (name, value, expected) in [
        ("Content-Length", "1", "`Content-Length` cannot be sent: the client writes it itself"),
        ("authorization", "Basic canary", "it carries the key"),
        ("two words", "canary", "its name"),
        ("x-title", "canary\nx-other: 1", "line break"),
    ] {
        let error = base.clone().with_header(name, value.into()).common_headers().unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("canary"), "{error}");
    }
    let own = HttpConfig::new("https://example.com").with_header("authorization", "Basic abc".into());
    assert_eq!(own.common_headers().unwrap()["authorization"], "Basic abc");
}

#[test]
fn neither_debug_nor_redacted_texts_show_a_secret() {
    let config = config("https://example.com")
        .with_key_name("EXAMPLE_API_KEY")
        .with_header("x-auth", "Bearer canary-token-1".into())
        .with_query("api-version", "2024-10-21")
        .with_query("api_key", "canary-key-2");
    let text = format!("{config:?}");
    assert!(text.contains("example.com") && text.contains("x-auth") && !text.contains("canary"), "{text}");
    let redactor = config.redactor();
    let redacted = redactor.redact("sk-canary-1234 canary-token-1 canary-key-2 2024-10-21").into_owned();
    assert_eq!(redacted, "[REDACTED:EXAMPLE_API_KEY] [REDACTED:X-AUTH] [REDACTED:API_KEY] 2024-10-21");
}

#[test]
fn a_header_is_secret_by_its_name_or_by_its_value() {
    for (name, value) in [
        ("Authorization", "Basic abc"),
        ("proxy-authorization", "x"),
        ("x-api-key", "demo"),
        ("x-access-token", "demo"),
        ("cookie", "a=b"),
        ("x-team", "c2VjcmV0LXRva2VuLTEyMzQ1"),
    ] {
        assert!(is_secret_header(name, value), "{name}: {value}");
    }
    for (name, value) in
        [("x-title", "Conjure"), ("HTTP-Referer", "https://example.com/some/page"), ("x-v", "2")]
    {
        assert!(!is_secret_header(name, value), "{name}: {value}");
    }
}

#[tokio::test]
async fn the_service_is_named_with_an_unusual_port() {
    for (url, expected) in [
        ("http://api.example.com/v1", "api.example.com"),
        ("http://api.example.com:80/v1", "api.example.com"),
        ("http://api.example.com:8443", "api.example.com:8443"),
        ("http://[::1]:8080", "[::1]:8080"),
    ] {
        let config = HttpConfig::new(url).with_plaintext(PlaintextPolicy::Anywhere);
        assert_eq!(HttpClient::new(&config).unwrap().service(), expected, "{url}");
    }
}

//! Restricts a server without keys to programs on this machine, and excludes web pages.
//!
//! A page in a browser can send requests to the loopback interface under its own name that resolves there (DNS rebinding). So `Host` must
//! be a loopback name. The same holds for `Origin`, which only browsers send.

use axum::http::{HeaderMap, HeaderValue, header};

use crate::http::error::ApiError;

/// Refuses requests that no local program would send.
pub(crate) fn check_loopback(headers: &HeaderMap) -> Result<(), ApiError> {
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Err(ApiError::invalid("the request has more than one header `Host`; send one"));
    }
    let host = headers.get(header::HOST).and_then(text).unwrap_or_default();
    if !is_loopback(host) {
        return Err(ApiError::permission(format!(
            "the host `{host}` is not this machine; the server answers to `localhost`, `127.0.0.1` and `[::1]` only"
        )));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = text(origin).unwrap_or_default();
    let named = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    if named.is_some_and(is_loopback) {
        return Ok(());
    }
    Err(ApiError::permission(format!("the origin `{origin}` is a page of another machine")))
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

/// Whether this is a name of the loopback interface, with or without a port.
fn is_loopback(authority: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| match authority.strip_prefix(name) {
        Some("") => true,
        Some(rest) => rest.strip_prefix(':').is_some_and(is_port),
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_loopback_interface_pass() {
        for good in ["localhost", "localhost:8400", "127.0.0.1:1", "[::1]:80", "[::1]"] {
            assert!(is_loopback(good), "{good}");
        }
        for bad in [
            "",
            "localhost.example.com",
            "127.0.0.1.nip.io:80",
            "example.com",
            "localhost:80.example.com",
            "10.0.0.1",
        ] {
            assert!(!is_loopback(bad), "{bad}");
        }
    }

    #[test]
    fn a_page_of_another_machine_is_refused() {
        let headers = |host: &str, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            check_loopback(&headers).is_ok()
        };
        assert!(headers("localhost:80", None) && headers("127.0.0.1", Some("http://localhost:3000")));
        assert!(!headers("localhost", Some("https://example.com")) && !headers("localhost", Some("null")));
        assert!(
            !headers("rebound.example.com", None)
                && !headers("localhost", Some("http://localhost.example.com"))
        );
    }
}

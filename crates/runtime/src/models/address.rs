//! Addresses of model services: comparing them, and showing them without secrets.

/// Whether two addresses belong to the same server.
pub(super) fn same_server(one: &str, other: &str) -> bool {
    origin(one).eq_ignore_ascii_case(origin(other))
}

/// The address without user name, password, query and fragment, because these may hold secrets.
pub(super) fn printable_address(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            format!("{scheme}://{host}{path}")
        }
        None => url.rsplit_once('@').map_or(url, |(_, rest)| rest).to_owned(),
    }
}

/// The scheme, the host and the port.
fn origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    &url[..end]
}

/// The address of Ollama's OpenAI-compatible API. `OLLAMA_HOST` is a host, a port or both, with or without a scheme. If
/// the server listens on every interface, the loopback address is used.
pub(super) fn ollama_url(host: &str) -> Option<String> {
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
    let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let (address, port) = match place.rsplit_once(':').filter(|_| has_port) {
        Some((address, port)) => (address, port),
        None if place.contains(':') && !place.ends_with(']') => return None,
        None => (place, if scheme == "https" { "443" } else { "11434" }),
    };
    let address = if matches!(address, "" | "0.0.0.0" | "[::]") { "127.0.0.1" } else { address };
    let is_sane = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
    if !matches!(scheme, "http" | "https") || !address.bytes().all(is_sane) {
        return None;
    }
    let path = path.trim_end_matches('/');
    let path = if path.is_empty() { "v1".to_owned() } else { format!("{path}/v1") };
    Some(format!("{scheme}://{address}:{port}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_ollama_is_read_as_ollama_reads_it() {
        for (host, url) in [
            ("box", Some("http://box:11434/v1")),
            ("box:80", Some("http://box:80/v1")),
            (":1234", Some("http://127.0.0.1:1234/v1")),
            ("0.0.0.0", Some("http://127.0.0.1:11434/v1")),
            ("[::1]:5", Some("http://[::1]:5/v1")),
            ("[::1]", Some("http://[::1]:11434/v1")),
            ("https://box", Some("https://box:443/v1")),
            ("http://box:1/ollama/", Some("http://box:1/ollama/v1")),
            ("box:port", None),
            ("ftp://box", None),
            ("user@box", None),
            ("a b", None),
        ] {
            assert_eq!(ollama_url(host).as_deref(), url, "{host}");
        }
    }

    #[test]
    fn no_secret_of_an_address_is_shown() {
        for (url, shown) in [
            ("https://h.example/v1", "https://h.example/v1"),
            ("http://u:p@h.example:8/v1?api_key=s#f", "http://h.example:8/v1"),
            ("http://u:p@ss@h", "http://h"),
            ("u:p@h/v1", "h/v1"),
            ("?x", ""),
        ] {
            assert_eq!(printable_address(url), shown, "{url}");
        }
    }

    #[test]
    fn a_server_is_its_scheme_host_and_port() {
        assert!(same_server("https://api.openai.com/v1", "https://API.openai.com/v1/?x=1"));
        assert!(!same_server("https://api.openai.com", "https://api.openai.com.example"));
        assert!(!same_server("https://api.openai.com", "http://api.openai.com"));
        assert!(!same_server("https://h:1/v1", "https://h/v1"));
    }
}

//! Requests to Podman's own API (libpod), for operations that Podman's Docker-compatible API does not support well.

use bollard::{BollardRequest, Docker};

/// The path prefix of the oldest supported version.
const OWN: &str = "/v4.0.0/libpod";

/// A client that sends every request to this path of Podman's own API.
pub(crate) fn libpod_client(client: &Docker, path: &str) -> Docker {
    let path = format!("{OWN}{path}");
    client.clone().with_request_modifier(move |request| rewrite_path(request, &path))
}

fn rewrite_path(mut request: BollardRequest, path: &str) -> BollardRequest {
    let uri = request.uri();
    let (scheme, host) =
        (uri.scheme_str().unwrap_or("http"), uri.authority().map_or("engine", |host| host.as_str()));
    // Special characters are percent-encoded.
    if let Ok(redirected) = format!("{scheme}://{host}{path}").parse() {
        *request.uri_mut() = redirected;
    }
    request
}

/// Percent-encodes a part of a query.
pub(crate) fn encoded(text: &str) -> String {
    let encoded = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(encoded).collect()
}

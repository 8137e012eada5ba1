//! Podman's own API, which it has beside that for Docker's clients: for what it does not do well there.

use bollard::{BollardRequest, Docker};

/// Where it is, in the oldest version of it that is spoken with.
const OWN: &str = "/v4.0.0/libpod";

/// A client that asks for this, below Podman's own API, whatever it is told to ask.
pub(super) fn asking(client: &Docker, path: &str) -> Docker {
    let path = format!("{OWN}{path}");
    client.clone().with_request_modifier(move |request| redirected(request, &path))
}

fn redirected(mut request: BollardRequest, path: &str) -> BollardRequest {
    let uri = request.uri();
    let (scheme, host) =
        (uri.scheme_str().unwrap_or("http"), uri.authority().map_or("engine", |host| host.as_str()));
    // All that is not plain in it is encoded.
    if let Ok(redirected) = format!("{scheme}://{host}{path}").parse() {
        *request.uri_mut() = redirected;
    }
    request
}

/// As a part of a query.
pub(super) fn encoded(text: &str) -> String {
    let encoded = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(encoded).collect()
}

//! Podman's own way to make an image of an archive.
//!
//! The one that it has for Docker's clients takes all instructions for one when they come as Docker's client sends them, puts
//! no tag on the image, and leaves a copy of each archive in the folder for temporary files, for ever (4.3). So the question
//! goes to `libpod/images/import` instead, whose answer a client of Docker's understands. There an instruction sets one
//! variable.

use bollard::{BollardRequest, Docker};

use super::name::ImageName;

/// The oldest version of it that is spoken with.
const IMPORT: &str = "/v4.0.0/libpod/images/import";

/// A client that asks for this, whatever it is told to ask.
pub(super) fn importing(client: &Docker, name: &ImageName, changes: &[String]) -> Docker {
    let path = path(name, changes);
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

fn path(name: &ImageName, changes: &[String]) -> String {
    let single = changes.iter().flat_map(|change| single(change));
    let changes: String = single.map(|change| format!("&changes={}", encoded(&change))).collect();
    // As Docker's clients call it, or it would not be found by the name that was asked for.
    format!("{IMPORT}?reference={}{changes}", encoded(&name.whole().to_string()))
}

/// `ENV A=1 B=2` as two instructions. Values have no spaces.
fn single(change: &str) -> Vec<String> {
    match change.strip_prefix("ENV ") {
        Some(variables) => variables.split(' ').map(|variable| format!("ENV {variable}")).collect(),
        None => vec![change.to_owned()],
    }
}

/// As a part of a query.
fn encoded(text: &str) -> String {
    let encoded = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(encoded).collect()
}

#[cfg(test)]
mod tests {
    use super::super::debian::CHANGES;
    use super::*;

    #[test]
    fn every_instruction_is_asked_for_by_itself() {
        let path = path(&ImageName::default(), &CHANGES.map(str::to_owned));
        let expected = "/v4.0.0/libpod/images/import?reference=docker.io/conjure/sandbox:latest\
                        &changes=ENV%20PATH%3D/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\
                        &changes=ENV%20PYTHONUNBUFFERED%3D1&changes=ENV%20NODE_ENV%3Dproduction\
                        &changes=USER%20sandbox&changes=WORKDIR%20/workspace&changes=CMD%20%5B%22bash%22%5D";
        assert_eq!(path, expected);
    }
}

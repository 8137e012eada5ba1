//! Imports an image archive through Podman's own API.
//!
//! Podman's Docker-compatible import (4.3) has three faults. It treats all instructions of a Docker client as one,
//! does not tag the image, and leaves a copy of each archive in the temporary directory. So the request goes to
//! `libpod/images/import`, whose response Docker clients understand. There, each instruction sets only one variable.

use bollard::Docker;

use super::name::ImageName;
use crate::docker::engine::libpod::{encoded, libpod_client};

/// A client that sends every request to the import.
pub(super) fn import_client(client: &Docker, name: &ImageName, changes: &[String]) -> Docker {
    libpod_client(client, &path(name, changes))
}

fn path(name: &ImageName, changes: &[String]) -> String {
    let single = changes.iter().flat_map(|change| single(change));
    let changes: String = single.map(|change| format!("&changes={}", encoded(&change))).collect();
    // The reference has Docker's full name. Otherwise the image would not be found by the requested name.
    format!("/images/import?reference={}{changes}", encoded(&name.qualified().to_string()))
}

/// Splits `ENV A=1 B=2` into two instructions. Values contain no spaces.
fn single(change: &str) -> Vec<String> {
    match change.strip_prefix("ENV ") {
        Some(variables) => variables.split(' ').map(|variable| format!("ENV {variable}")).collect(),
        None => vec![change.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::image::sources::mmdebstrap::CHANGES;

    #[test]
    fn every_instruction_is_asked_for_by_itself() {
        let path = path(&ImageName::default(), &CHANGES.map(str::to_owned));
        let expected = "/images/import?reference=docker.io/conjure/sandbox:latest\
                        &changes=ENV%20PATH%3D/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\
                        &changes=ENV%20PYTHONUNBUFFERED%3D1&changes=ENV%20NODE_ENV%3Dproduction\
                        &changes=USER%20sandbox&changes=WORKDIR%20/workspace&changes=CMD%20%5B%22bash%22%5D";
        assert_eq!(path, expected);
    }
}

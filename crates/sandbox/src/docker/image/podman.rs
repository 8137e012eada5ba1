//! Podman's own way to make an image of an archive.
//!
//! The one that it has for Docker's clients takes all instructions for one when they come as Docker's client sends them, puts
//! no tag on the image, and leaves a copy of each archive in the folder for temporary files, for ever (4.3). So the question
//! goes to `libpod/images/import` instead, whose answer a client of Docker's understands. There an instruction sets one
//! variable.

use bollard::Docker;

use super::super::podman::{asking, encoded};
use super::name::ImageName;

/// A client that asks for this, whatever it is told to ask.
pub(super) fn importing(client: &Docker, name: &ImageName, changes: &[String]) -> Docker {
    asking(client, &path(name, changes))
}

fn path(name: &ImageName, changes: &[String]) -> String {
    let single = changes.iter().flat_map(|change| single(change));
    let changes: String = single.map(|change| format!("&changes={}", encoded(&change))).collect();
    // As Docker's clients call it, or it would not be found by the name that was asked for.
    format!("/images/import?reference={}{changes}", encoded(&name.whole().to_string()))
}

/// `ENV A=1 B=2` as two instructions. Values have no spaces.
fn single(change: &str) -> Vec<String> {
    match change.strip_prefix("ENV ") {
        Some(variables) => variables.split(' ').map(|variable| format!("ENV {variable}")).collect(),
        None => vec![change.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::super::debian::CHANGES;
    use super::*;

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

//! What of an image matters to a sandbox: its variables, and where it wants volumes.

use std::collections::BTreeMap;
use std::path::Path;

use bollard::models::ImageInspect;

use crate::jail::RESERVED;

/// What of an image matters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ImageFacts {
    /// Its own name, which no other image has.
    pub(super) id: String,
    /// What it sets for its programs.
    pub(super) environment: BTreeMap<String, String>,
    /// Where it would have the engine make volumes: room on the disk that nobody counts. Not where a sandbox has something of
    /// its own.
    pub(super) volumes: Vec<String>,
}

/// What an image says of a user and a machine that are not those of a sandbox.
const NOT_ITS_OWN: [&str; 6] = ["HOME", "HOSTNAME", "LOGNAME", "PWD", "TERM", "USER"];

impl ImageFacts {
    pub(super) fn of(image: ImageInspect) -> Self {
        let config = image.config.unwrap_or_default();
        let pairs = config.env.unwrap_or_default();
        let environment = pairs
            .iter()
            .filter_map(|pair| pair.split_once('='))
            .filter(|(name, _)| !name.is_empty() && !NOT_ITS_OWN.contains(name))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let volumes = config.volumes.unwrap_or_default();
        let volumes = volumes.iter().map(|path| path.trim_end_matches('/'));
        let volumes =
            volumes.filter(|path| path.starts_with('/') && !is_reserved(path)).map(str::to_owned).collect();
        Self { id: image.id.unwrap_or_default(), environment, volumes }
    }
}

/// Whether a sandbox has something of its own there, or in it.
fn is_reserved(path: &str) -> bool {
    let own = RESERVED.iter().chain(&["/artifacts", "/var/tmp", "/dev/shm"]);
    let lies_in = ["/dev", "/proc", "/sys"].into_iter().any(|folder| Path::new(path).starts_with(folder));
    lies_in || own.into_iter().any(|own| Path::new(own).starts_with(path))
}

#[cfg(test)]
mod tests {
    use bollard::models::ImageConfig;

    use super::*;

    #[test]
    fn an_images_variables_are_taken_but_for_whose_it_is() {
        let env = ["PATH=/opt/bin:/bin", "HOME=/root", "EMPTY=", "broken", "=x", "A=b=c"];
        let config = ImageConfig {
            env: Some(env.map(str::to_owned).to_vec()),
            volumes: Some(["/data/", "/workspace", "/", "no", "/proc/x", "/mnt"].map(str::to_owned).to_vec()),
            ..ImageConfig::default()
        };
        let facts = ImageFacts::of(ImageInspect { config: Some(config), ..ImageInspect::default() });
        let names: Vec<_> = facts.environment.keys().map(String::as_str).collect();
        assert_eq!(names, ["A", "EMPTY", "PATH"]);
        assert_eq!(facts.environment["A"], "b=c");
        assert_eq!(facts.volumes, ["/data"]);
    }
}

//! [`ImageInfo`]: the parts of `docker inspect IMAGE` that a sandbox uses, variables and volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use bollard::models::ImageInspect;

use crate::error::{SandboxError, SandboxErrorKind};

/// The parts of an image that a sandbox uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ImageInfo {
    /// Its unique id.
    pub(super) id: String,
    /// The variables that it sets.
    pub(super) environment: BTreeMap<String, String>,
    /// The volumes that it declares, as normalised paths.
    pub(super) volumes: BTreeSet<String>,
}

/// Variables that describe the user and machine of the image. A sandbox has its own values.
const SANDBOX_VARIABLES: [&str; 6] = ["HOME", "HOSTNAME", "LOGNAME", "PWD", "TERM", "USER"];

/// Variables of proxies, in lower and upper case. A sandbox cannot reach these proxies, and may have one of its own.
const PROXY_VARIABLES: [&str; 6] =
    ["ALL_PROXY", "FTP_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "NODE_USE_ENV_PROXY"];

impl ImageInfo {
    /// Parses the response of the engine.
    ///
    /// # Errors
    /// If the image declares a volume at an ambiguous path.
    pub(super) fn from_inspect(image: ImageInspect) -> Result<Self, SandboxError> {
        let config = image.config.unwrap_or_default();
        let pairs = config.env.unwrap_or_default();
        let environment = pairs
            .iter()
            .filter_map(|pair| pair.split_once('='))
            .filter(|(name, _)| {
                !name.is_empty() && !SANDBOX_VARIABLES.contains(name) && !is_proxy_variable(name)
            })
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let volumes = config.volumes.unwrap_or_default();
        let volumes = volumes.iter().map(|path| normal(path)).collect::<Result<_, _>>()?;
        Ok(Self { id: image.id.unwrap_or_default(), environment, volumes })
    }
}

fn is_proxy_variable(name: &str) -> bool {
    PROXY_VARIABLES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// The path as the engine compares it. The image stores the path of a `VOLUME` as written, and the engine normalises
/// it when a container is created.
fn normal(given: &str) -> Result<String, SandboxError> {
    let parts = Path::new(given).components().skip(1);
    let names: Option<Vec<&str>> = parts
        .map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    match names.filter(|names| given.starts_with('/') && !names.is_empty()) {
        Some(names) => Ok(format!("/{}", names.join("/"))),
        None => Err(unusable(given, "which is no absolute path without `..`")),
    }
}

/// The error for an image with an unusable volume.
pub(super) fn unusable(volume: &str, why: &str) -> SandboxError {
    let message = format!(
        "the image wants a volume at `{volume}`, {why}; take an image without that `VOLUME`, or build this one without it"
    );
    SandboxError::new(SandboxErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use bollard::models::ImageConfig;

    use super::*;

    #[test]
    fn an_images_variables_are_taken_but_for_whose_it_is() {
        let env = [
            "PATH=/opt/bin:/bin",
            "HOME=/root",
            "EMPTY=",
            "broken",
            "=x",
            "A=b=c",
            "https_proxy=http://corp:3128",
            "HTTP_PROXY=http://corp:3128",
            "no_proxy=*",
        ];
        let config = ImageConfig {
            env: Some(env.map(str::to_owned).to_vec()),
            volumes: Some(["/data/", "/data//./deep", "//data"].map(str::to_owned).to_vec()),
            ..ImageConfig::default()
        };
        let info = ImageInfo::from_inspect(ImageInspect { config: Some(config), ..ImageInspect::default() })
            .unwrap();
        let names: Vec<_> = info.environment.keys().map(String::as_str).collect();
        assert_eq!(names, ["A", "EMPTY", "PATH"]);
        assert_eq!(info.environment["A"], "b=c");
        assert_eq!(info.volumes, ["/data", "/data/deep"].map(str::to_owned).into());
    }

    #[test]
    fn a_volume_whose_place_depends_on_who_reads_it_is_refused() {
        for path in ["/data/../srv", "/x/../workspace", "data", "/", "", "/.."] {
            let config = ImageConfig { volumes: Some(vec![path.to_owned()]), ..ImageConfig::default() };
            let image = ImageInspect { config: Some(config), ..ImageInspect::default() };
            let refused = ImageInfo::from_inspect(image).unwrap_err().to_string();
            assert!(refused.contains(&format!("a volume at `{path}`")), "{refused}");
        }
    }
}

//! What a host says about its containers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use conjure_guest::protocol::Access;

use super::address::EngineAddress;

/// The image that containers are made of where none is named (specification 5.8).
const IMAGE: &str = "conjure/sandbox:latest";

/// What a host says about its containers (specification 5.8, 9.2). How much they may use is in the context, as for every
/// kind of sandbox: 512 MiB and one processor unless it says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerOptions {
    /// Where the engine listens; the first that answers is taken. Empty: the usual sockets of this machine.
    pub engine: Vec<EngineAddress>,
    /// The image, which the engine must have: nothing is downloaded. `conjure/sandbox:latest` by default.
    pub image: String,
    /// As whom commands run, `USER` or `USER:GROUP`, names of the image or numbers. `None`: as the workspace's owner; where
    /// that is root, as somebody who owns nothing, who has the files until the container is over.
    pub user: Option<String>,
    /// The runtime that runs them, such as `runsc` or `kata`; `None`: the engine's own choice.
    pub runtime: Option<String>,
    /// Further folders of the host.
    pub volumes: Vec<Volume>,
    /// Further labels. Those of Conjure's own, which begin with `conjure.`, cannot be set; whose a container is, its context
    /// says.
    pub labels: BTreeMap<String, String>,
    /// How old a container may become until hosts of other machines, who cannot know whether its host lives, take it for
    /// left behind. Nothing renews it: it must be longer than any sandbox lives.
    pub lease: Duration,
}

impl Default for DockerOptions {
    fn default() -> Self {
        Self {
            engine: Vec::new(),
            image: IMAGE.to_owned(),
            user: None,
            runtime: None,
            volumes: Vec::new(),
            labels: BTreeMap::new(),
            lease: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}

/// A folder of the host's in containers, for reading only unless it says otherwise.
///
/// ```
/// use conjure_sandbox::{Access, Volume};
///
/// let volume: Volume = "/srv/data:/data".parse()?;
/// assert_eq!(volume.access, Access::ReadOnly);
/// assert_eq!("/srv/out:/out:rw".parse::<Volume>()?.access, Access::ReadWrite);
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The folder on the host, which must exist.
    pub host: PathBuf,
    /// Its absolute path in containers.
    pub target: PathBuf,
    /// Whether commands may write it.
    pub access: Access,
}

impl FromStr for Volume {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (host, target, access) = match parts.as_slice() {
            [host, target] | [host, target, "ro"] => (host, target, Access::ReadOnly),
            [host, target, "rw"] => (host, target, Access::ReadWrite),
            _ => {
                return Err(format!(
                    "`{text}` is no volume: `HOST:TARGET`, or `HOST:TARGET:rw` to write it; paths with `:`, and with \
                     `,` in a list, cannot be named so"
                ));
            }
        };
        if !host.starts_with('/') || !target.starts_with('/') {
            return Err(format!("`{text}` is no volume: both paths must be absolute"));
        }
        Ok(Self { host: host.into(), target: target.into(), access })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_read_only_unless_it_says_otherwise() {
        let volume: Volume = "/a:/b:ro".parse().unwrap();
        assert_eq!((volume.host, volume.target), ("/a".into(), "/b".into()));
        for text in ["", "/a", "a:/b", "/a:b", "/a:/b:rwx", "/a:/b:ro:z"] {
            assert!(text.parse::<Volume>().unwrap_err().contains("is no volume"), "{text}");
        }
    }
}

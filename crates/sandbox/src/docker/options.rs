//! [`DockerOptions`]: the embedder's choices for its containers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use conjure_guest::protocol::Access;

use crate::docker::engine::address::EngineAddress;

/// The default image (specification 5.8).
const IMAGE: &str = "conjure/sandbox:latest";

/// The embedder's choices for its containers (specification 5.8, 9.2). Resource limits are in the context, as for every
/// kind of sandbox: 512 MiB and one processor by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerOptions {
    /// The addresses of the engine. The first one that answers is used. Empty: the usual sockets of this machine.
    pub engine: Vec<EngineAddress>,
    /// The image. The engine must already have it, because nothing is downloaded. `conjure/sandbox:latest` by
    /// default.
    pub image: String,
    /// The user of commands, `USER` or `USER:GROUP`, as names of the image or ids. `None`: the owner of the
    /// workspace; if that is root, a user that owns nothing. That user owns the files until the container ends.
    pub user: Option<String>,
    /// The OCI runtime, such as `runsc` or `kata`; `None`: the engine's default.
    pub runtime: Option<String>,
    /// Further host directories to mount.
    pub volumes: Vec<HostMount>,
    /// Further labels. Labels that begin with `conjure.` cannot be set; the context determines them.
    pub labels: BTreeMap<String, String>,
    /// The age at which another machine may remove a container, because it cannot know whether the owning process is
    /// alive. It is never renewed, so it must be longer than the life of any sandbox.
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

/// A host directory that is mounted in containers, read-only by default.
///
/// ```
/// use conjure_sandbox::{Access, HostMount};
///
/// let volume: HostMount = "/srv/data:/data".parse()?;
/// assert_eq!(volume.access, Access::ReadOnly);
/// assert_eq!("/srv/out:/out:rw".parse::<HostMount>()?.access, Access::ReadWrite);
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMount {
    /// The directory on the host, which must exist.
    pub host: PathBuf,
    /// Its absolute path in containers.
    pub target: PathBuf,
    /// Whether commands may write it.
    pub access: Access,
}

impl FromStr for HostMount {
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
        let volume: HostMount = "/a:/b:ro".parse().unwrap();
        assert_eq!((volume.host, volume.target), ("/a".into(), "/b".into()));
        for text in ["", "/a", "a:/b", "/a:b", "/a:/b:rwx", "/a:/b:ro:z"] {
            assert!(text.parse::<HostMount>().unwrap_err().contains("is no volume"), "{text}");
        }
    }
}

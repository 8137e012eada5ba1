//! [`EngineInfo`]: the kind, version and capabilities of an engine, from `docker info`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use bollard::models::{SystemInfo, SystemInfoCgroupVersionEnum, SystemVersion, SystemVersionComponents};

use super::address::EngineAddress;
use super::error_map::no_engine;
use crate::error::SandboxError;
use crate::settings::isolation::{Boundary, Isolation};
use crate::settings::layout::HostAccess;

/// The kind of engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// Docker Engine or a compatible one.
    Docker,
    /// Podman's service.
    Podman,
}

impl EngineKind {
    /// The kind, from the engine's version.
    pub(crate) fn from_version(version: &SystemVersion) -> Self {
        if podman(version).is_some() { Self::Podman } else { Self::Docker }
    }

    /// The names under which an image is searched, in this order. Podman's command line stores an image without a
    /// registry as `localhost/NAME`. Podman's service expands such a name to Docker's registry.
    pub(crate) fn names_for(self, image: &str) -> Vec<String> {
        let first = image.split('/').next().filter(|first| first.len() < image.len());
        let has_registry = first.is_some_and(|first| first.contains(['.', ':']) || first == "localhost");
        match self {
            Self::Podman if !has_registry && !image.starts_with("sha256:") => {
                vec![image.to_owned(), format!("localhost/{image}")]
            }
            _ => vec![image.to_owned()],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Docker => "Docker Engine",
            Self::Podman => "Podman",
        }
    }
}

/// The engine and image that containers use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerEnvironment {
    /// The kind of engine.
    pub engine: EngineKind,
    /// Its version.
    pub version: String,
    /// Its address.
    pub address: EngineAddress,
    /// Whether the engine runs without the rights of root.
    pub is_rootless: bool,
    /// Whether containers mount the host's directories or get copies.
    pub host_access: HostAccess,
    /// The digest of the image.
    pub image_id: String,
    /// The OCI runtime of containers.
    pub runtime: String,
    /// The boundaries of containers, as far as they are known before one is created.
    pub isolation: Isolation,
}

/// The kind, version and capabilities of an engine.
#[derive(Debug, Clone)]
pub(crate) struct EngineInfo {
    pub(crate) kind: EngineKind,
    pub(crate) version: String,
    pub(crate) is_rootless: bool,
    /// Whether the engine maps users (`userns-remap`).
    pub(crate) maps_users: bool,
    pub(crate) limits_memory: bool,
    /// Whether the engine limits swap. Without that, memory has no limit on a machine with swap.
    pub(crate) limits_swap: bool,
    pub(crate) limits_processors: bool,
    pub(crate) limits_processes: bool,
    pub(crate) default_runtime: String,
    pub(crate) runtimes: Vec<String>,
}

/// Whether the engine's machine has swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SwapSupport {
    None,
    /// There is swap, or it is unknown whether there is.
    Possible,
}

impl SwapSupport {
    /// Detects the current swap support.
    pub(crate) fn detect(address: &EngineAddress) -> Self {
        if !address.is_local() {
            return Self::Possible;
        }
        // The first line has the column names.
        match fs::read_to_string("/proc/swaps") {
            Ok(listed) if listed.lines().count() <= 1 => Self::None,
            _ => Self::Possible,
        }
    }
}

/// The oldest supported versions.
const MIN_DOCKER: (u32, u32) = (20, 10);
const MIN_PODMAN: (u32, u32) = (4, 0);

impl EngineInfo {
    /// Creates the information from the engine's version and info.
    ///
    /// # Errors
    /// When the engine is too old, or its answer is malformed.
    pub(crate) fn from_answers(
        address: &EngineAddress,
        version: SystemVersion,
        info: SystemInfo,
    ) -> Result<Self, SandboxError> {
        let kind = EngineKind::from_version(&version);
        let text = podman(&version).map(|podman| podman.version.clone()).or(version.version);
        let text = text.ok_or_else(|| no_engine(format!("what answers at `{address}` tells no version")))?;
        let least = match kind {
            EngineKind::Docker => MIN_DOCKER,
            EngineKind::Podman => MIN_PODMAN,
        };
        let name = kind.name();
        let found = numbers(&text)
            .ok_or_else(|| no_engine(format!("the one at `{address}` has no version: `{text}`")))?;
        if found < least {
            return Err(no_engine(format!(
                "{name} {text} at `{address}` is too old: {}.{} or later is needed",
                least.0, least.1
            )));
        }
        if info.os_type.as_deref().is_some_and(|system| system != "linux") {
            return Err(no_engine(format!("{name} at `{address}` runs no containers of Linux")));
        }
        let security = info.security_options.unwrap_or_default();
        let has = |name: &str| security.iter().any(|option| option.split(',').any(|part| part == name));
        let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
        runtimes.sort_unstable();
        // Podman does not always report this. But its socket belongs to the user that runs it.
        let is_rootless = has("name=rootless") || (kind == EngineKind::Podman && is_of_a_user(address));
        // Rootless engines with cgroup version 1 report limits that they do not enforce.
        let limits = !(is_rootless && info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_1));
        Ok(Self {
            kind,
            version: text,
            is_rootless,
            maps_users: has("name=userns"),
            limits_memory: limits && info.memory_limit == Some(true),
            limits_swap: info.swap_limit == Some(true),
            limits_processors: limits && info.cpu_cfs_quota == Some(true),
            limits_processes: limits && info.pids_limit == Some(true),
            default_runtime: info.default_runtime.unwrap_or_default(),
            runtimes,
        })
    }

    /// Whether containers of this engine, at this address, can mount the host's directories. If the engine maps users
    /// (`userns-remap`), files that they write would have an unknown owner on the host.
    pub(crate) const fn host_access(&self, address: &EngineAddress) -> HostAccess {
        if address.is_local() && !self.maps_users { HostAccess::Mounted } else { HostAccess::Copied }
    }

    /// Its name and version, for messages.
    pub(crate) fn name(&self) -> String {
        let rootless = if self.is_rootless { " (rootless)" } else { "" };
        format!("{} {}{rootless}", self.kind.name(), self.version)
    }

    /// The boundaries of every container of this engine, if its guest confines itself. `identity` tells whether
    /// commands run as a user that owns nothing.
    pub(crate) fn isolation(&self, identity: Boundary, swap: SwapSupport) -> Isolation {
        Isolation {
            filesystem: Boundary::Enforced,
            network: Boundary::Enforced,
            processes: Boundary::Enforced,
            identity,
            syscalls: Boundary::Enforced,
            files: Boundary::Enforced,
            memory: Boundary::enforced_if(
                self.limits_memory && (self.limits_swap || swap == SwapSupport::None),
            ),
            processor: Boundary::enforced_if(self.limits_processors),
            process_count: Boundary::enforced_if(self.limits_processes),
            disk: Boundary::Watched,
        }
    }
}

/// Podman's component of a version.
fn podman(version: &SystemVersion) -> Option<&SystemVersionComponents> {
    version.components.iter().flatten().find(|component| component.name.contains("Podman"))
}

/// Whether the socket belongs to a user other than root.
fn is_of_a_user(address: &EngineAddress) -> bool {
    let EngineAddress::Unix(path) = address else { return false };
    fs::metadata(path).is_ok_and(|found| found.uid() != 0)
}

/// The first two numbers of a version.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split(['.', '-', '+', '~']);
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next().and_then(|minor| minor.parse().ok()).unwrap_or(0);
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: SystemVersion) -> Result<EngineInfo, SandboxError> {
        EngineInfo::from_answers(&EngineAddress::Unix("/run/engine".into()), version, SystemInfo::default())
    }

    fn docker(version: &str) -> SystemVersion {
        SystemVersion { version: Some(version.to_owned()), ..SystemVersion::default() }
    }

    fn podman(version: &str) -> SystemVersion {
        let component = SystemVersionComponents {
            name: "Podman Engine".to_owned(),
            version: version.to_owned(),
            ..SystemVersionComponents::default()
        };
        SystemVersion { components: Some(vec![component]), ..docker(version) }
    }

    #[test]
    fn an_engine_that_is_too_old_is_refused_by_name() {
        assert_eq!(info(docker("20.10.24+dfsg1")).unwrap().name(), "Docker Engine 20.10.24+dfsg1");
        assert_eq!(info(docker("29.0.0-rc.1")).unwrap().kind, EngineKind::Docker);
        assert_eq!(info(podman("4.3.1")).unwrap().kind, EngineKind::Podman);
        for (version, message) in [
            (docker("19.03.15"), "Docker Engine 19.03.15 at `unix:///run/engine` is too old: 20.10 or later"),
            (podman("3.4.4"), "Podman 3.4.4 at `unix:///run/engine` is too old: 4.0 or later"),
            (docker("dev"), "has no version: `dev`"),
            (SystemVersion::default(), "tells no version"),
        ] {
            let error = info(version).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
            assert_eq!(error.kind(), crate::SandboxErrorKind::EngineUnavailable);
        }
    }

    #[test]
    fn an_image_without_a_registry_is_looked_for_by_both_names_that_podman_has_for_it() {
        for name in ["a", "a:b", "conjure/sandbox:latest"] {
            assert_eq!(EngineKind::Podman.names_for(name), [name, &format!("localhost/{name}")]);
            assert_eq!(EngineKind::Docker.names_for(name), [name]);
        }
        for name in ["sha256:12ab", "localhost/a", "docker.io/library/a:b", "host:5000/a"] {
            assert_eq!(EngineKind::Podman.names_for(name), [name]);
        }
    }

    #[test]
    fn directories_are_shared_where_they_are_the_engines_and_users_are_the_same() {
        let mut info = info(docker("25.0.3")).unwrap();
        let (here, there) =
            (EngineAddress::Unix("/run/engine".into()), EngineAddress::Tcp("there:2375".to_owned()));
        assert_eq!(
            (info.host_access(&here), info.host_access(&there)),
            (HostAccess::Mounted, HostAccess::Copied)
        );
        info.maps_users = true;
        assert_eq!(info.host_access(&here), HostAccess::Copied);
    }

    #[test]
    fn what_an_engine_does_not_limit_is_open() {
        let open = info(docker("25.0.3")).unwrap().isolation(Boundary::Enforced, SwapSupport::None);
        assert_eq!(open.open().collect::<Vec<_>>(), ["memory", "processor", "process_count"]);
    }

    #[test]
    fn memory_has_a_bound_only_where_what_is_swapped_out_counts() {
        let isolation = |swap_limit, swap| {
            let info = SystemInfo { memory_limit: Some(true), swap_limit, ..SystemInfo::default() };
            let info =
                EngineInfo::from_answers(&EngineAddress::Unix("/run/engine".into()), docker("25.0"), info);
            info.unwrap().isolation(Boundary::Open, swap).memory
        };
        assert_eq!(isolation(Some(true), SwapSupport::Possible), Boundary::Enforced);
        assert_eq!(isolation(Some(false), SwapSupport::None), Boundary::Enforced);
        assert_eq!(isolation(Some(false), SwapSupport::Possible), Boundary::Open);
        assert_eq!(isolation(None, SwapSupport::Possible), Boundary::Open);
        assert_eq!(
            SwapSupport::detect(&EngineAddress::Tcp("10.0.0.1:2375".to_owned())),
            SwapSupport::Possible
        );
    }

    #[test]
    fn what_a_rootless_engine_cannot_limit_is_open_whatever_it_says() {
        let limited = |cgroup_version| SystemInfo {
            memory_limit: Some(true),
            cpu_cfs_quota: Some(true),
            pids_limit: Some(true),
            security_options: Some(vec!["name=rootless".to_owned()]),
            cgroup_version: Some(cgroup_version),
            ..SystemInfo::default()
        };
        let open = |info| {
            let address = EngineAddress::Unix("/run/engine".into());
            let info = EngineInfo::from_answers(&address, podman("4.3.1"), info).unwrap();
            info.isolation(Boundary::Enforced, SwapSupport::None).open().count()
        };
        assert_eq!(open(limited(SystemInfoCgroupVersionEnum::_1)), 3);
        assert_eq!(open(limited(SystemInfoCgroupVersionEnum::_2)), 0);
    }
}

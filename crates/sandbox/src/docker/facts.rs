//! What an engine is and can do, as it says itself.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use bollard::models::{SystemInfo, SystemInfoCgroupVersionEnum, SystemVersion, SystemVersionComponents};

use super::address::EngineAddress;
use super::failure::no_engine;
use crate::error::SandboxError;
use crate::isolation::{Boundary, Isolation};
use crate::types::Sharing;

/// Which engine it is: they differ in details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// Docker Engine, or what behaves like it.
    Docker,
    /// Podman's service.
    Podman,
}

impl EngineKind {
    /// As an engine's version tells it.
    pub(super) fn of(version: &SystemVersion) -> Self {
        if podman(version).is_some() { Self::Podman } else { Self::Docker }
    }

    /// By what names an image is looked for that was named so, in this order. What Podman's own command builds under a name
    /// without a registry is called `localhost/NAME`; its service takes such a name for one of Docker's.
    pub(super) fn names_of(self, image: &str) -> Vec<String> {
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

/// What containers have to do with here: the engine and the image, both of which are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerEnvironment {
    /// Which engine.
    pub engine: EngineKind,
    /// Its version, as it says it.
    pub version: String,
    /// Where it listens.
    pub address: EngineAddress,
    /// Whether it runs without root's rights.
    pub is_rootless: bool,
    /// Whether containers have the host's folders, or content travels to them.
    pub sharing: Sharing,
    /// The image's own name: its digest.
    pub image_id: String,
    /// The runtime that containers are run by.
    pub runtime: String,
    /// What containers keep apart from the host, as far as it is known before there is one.
    pub isolation: Isolation,
}

/// What an engine is and can do.
#[derive(Debug, Clone)]
pub(super) struct EngineFacts {
    pub(super) kind: EngineKind,
    pub(super) version: String,
    pub(super) is_rootless: bool,
    /// Whether users in containers are others on the host (`userns-remap`).
    pub(super) maps_users: bool,
    pub(super) limits_memory: bool,
    /// Whether memory on the disk counts, too: else what a sandbox may use has no bound where there is such.
    pub(super) limits_swap: bool,
    pub(super) limits_processors: bool,
    pub(super) limits_processes: bool,
    pub(super) default_runtime: String,
    pub(super) runtimes: Vec<String>,
}

/// Whether the engine's machine has memory on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Swap {
    None,
    /// There is some, or it cannot be known.
    Possible,
}

impl Swap {
    /// As it is now.
    pub(super) fn of(address: &EngineAddress) -> Self {
        if !address.is_local() {
            return Self::Possible;
        }
        // The first line says what the columns are.
        match fs::read_to_string("/proc/swaps") {
            Ok(listed) if listed.lines().count() <= 1 => Self::None,
            _ => Self::Possible,
        }
    }
}

/// The oldest versions, with what they are called and when they came.
const LEAST_DOCKER: (u32, u32) = (20, 10);
const LEAST_PODMAN: (u32, u32) = (4, 0);

impl EngineFacts {
    /// Of an engine's two answers.
    ///
    /// # Errors
    /// When the engine is too old, or says what no engine does.
    pub(super) fn of(
        address: &EngineAddress,
        version: SystemVersion,
        info: SystemInfo,
    ) -> Result<Self, SandboxError> {
        let kind = EngineKind::of(&version);
        let text = podman(&version).map(|podman| podman.version.clone()).or(version.version);
        let text = text.ok_or_else(|| no_engine(format!("what answers at `{address}` tells no version")))?;
        let least = match kind {
            EngineKind::Docker => LEAST_DOCKER,
            EngineKind::Podman => LEAST_PODMAN,
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
        // Podman does not say it everywhere, but its socket is of who runs it.
        let is_rootless = has("name=rootless") || (kind == EngineKind::Podman && is_of_a_user(address));
        // There it says that it limits, and does not.
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

    /// Whether containers of this engine, which listens there, can have the host's folders. Where it maps users
    /// (`userns-remap`), what they write there would be nobody's on the host.
    pub(super) const fn sharing(&self, address: &EngineAddress) -> Sharing {
        if address.is_local() && !self.maps_users { Sharing::Shared } else { Sharing::Transferred }
    }

    /// Its name and version, for people.
    pub(super) fn name(&self) -> String {
        let rootless = if self.is_rootless { " (rootless)" } else { "" };
        format!("{} {}{rootless}", self.kind.name(), self.version)
    }

    /// What every container of this engine keeps apart from the host, if its guest can close itself in. `identity`:
    /// whether commands run as somebody who owns nothing.
    pub(super) fn isolation(&self, identity: Boundary, swap: Swap) -> Isolation {
        Isolation {
            filesystem: Boundary::Enforced,
            network: Boundary::Enforced,
            processes: Boundary::Enforced,
            identity,
            syscalls: Boundary::Enforced,
            files: Boundary::Enforced,
            memory: Boundary::enforced_if(self.limits_memory && (self.limits_swap || swap == Swap::None)),
            processor: Boundary::enforced_if(self.limits_processors),
            process_count: Boundary::enforced_if(self.limits_processes),
            disk: Boundary::Watched,
        }
    }
}

/// What of an engine is Podman.
fn podman(version: &SystemVersion) -> Option<&SystemVersionComponents> {
    version.components.iter().flatten().find(|component| component.name.contains("Podman"))
}

/// Whether it is a socket that is not root's.
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

    fn facts(version: SystemVersion) -> Result<EngineFacts, SandboxError> {
        EngineFacts::of(&EngineAddress::Unix("/run/engine".into()), version, SystemInfo::default())
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
        assert_eq!(facts(docker("20.10.24+dfsg1")).unwrap().name(), "Docker Engine 20.10.24+dfsg1");
        assert_eq!(facts(docker("29.0.0-rc.1")).unwrap().kind, EngineKind::Docker);
        assert_eq!(facts(podman("4.3.1")).unwrap().kind, EngineKind::Podman);
        for (version, told) in [
            (docker("19.03.15"), "Docker Engine 19.03.15 at `unix:///run/engine` is too old: 20.10 or later"),
            (podman("3.4.4"), "Podman 3.4.4 at `unix:///run/engine` is too old: 4.0 or later"),
            (docker("dev"), "has no version: `dev`"),
            (SystemVersion::default(), "tells no version"),
        ] {
            let error = facts(version).unwrap_err();
            assert!(error.to_string().contains(told), "{error}");
            assert_eq!(error.kind(), crate::SandboxErrorKind::EngineUnavailable);
        }
    }

    #[test]
    fn an_image_without_a_registry_is_looked_for_by_both_names_that_podman_has_for_it() {
        for name in ["a", "a:b", "conjure/sandbox:latest"] {
            assert_eq!(EngineKind::Podman.names_of(name), [name, &format!("localhost/{name}")]);
            assert_eq!(EngineKind::Docker.names_of(name), [name]);
        }
        for name in ["sha256:12ab", "localhost/a", "docker.io/library/a:b", "host:5000/a"] {
            assert_eq!(EngineKind::Podman.names_of(name), [name]);
        }
    }

    #[test]
    fn folders_are_shared_where_they_are_the_engines_and_users_are_the_same() {
        let mut facts = facts(docker("25.0.3")).unwrap();
        let (here, there) =
            (EngineAddress::Unix("/run/engine".into()), EngineAddress::Tcp("there:2375".to_owned()));
        assert_eq!((facts.sharing(&here), facts.sharing(&there)), (Sharing::Shared, Sharing::Transferred));
        facts.maps_users = true;
        assert_eq!(facts.sharing(&here), Sharing::Transferred);
    }

    #[test]
    fn what_an_engine_does_not_limit_is_open() {
        let open = facts(docker("25.0.3")).unwrap().isolation(Boundary::Enforced, Swap::None);
        assert_eq!(open.open().collect::<Vec<_>>(), ["memory", "processor", "process_count"]);
    }

    #[test]
    fn memory_has_a_bound_only_where_what_is_swapped_out_counts() {
        let isolation = |swap_limit, swap| {
            let info = SystemInfo { memory_limit: Some(true), swap_limit, ..SystemInfo::default() };
            let facts = EngineFacts::of(&EngineAddress::Unix("/run/engine".into()), docker("25.0"), info);
            facts.unwrap().isolation(Boundary::Open, swap).memory
        };
        assert_eq!(isolation(Some(true), Swap::Possible), Boundary::Enforced);
        assert_eq!(isolation(Some(false), Swap::None), Boundary::Enforced);
        assert_eq!(isolation(Some(false), Swap::Possible), Boundary::Open);
        assert_eq!(isolation(None, Swap::Possible), Boundary::Open);
        assert_eq!(Swap::of(&EngineAddress::Tcp("10.0.0.1:2375".to_owned())), Swap::Possible);
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
            let facts = EngineFacts::of(&address, podman("4.3.1"), info).unwrap();
            facts.isolation(Boundary::Enforced, Swap::None).open().count()
        };
        assert_eq!(open(limited(SystemInfoCgroupVersionEnum::_1)), 3);
        assert_eq!(open(limited(SystemInfoCgroupVersionEnum::_2)), 0);
    }
}

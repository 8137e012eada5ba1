//! [`ContainerSpec`]: the create request of a container. All hardening of containers is in this file.

use std::collections::{BTreeMap, HashMap};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountType, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use conjure_base::{Digest, TenantId};
use conjure_guest::protocol::Access;

use super::owner_labels::spec_digest;
use crate::docker::engine::engine_info::EngineKind;
use crate::docker::image_info::ImageInfo;
use crate::docker::options::DockerOptions;
use crate::jail::{HOME, HOSTNAME};
use crate::settings::limits::Limits;

/// The path of the guest's program in a container.
pub(crate) const GUEST: &str = "/.conjure/conjure-guest";

/// The maximum number of open files of the guest: some for each of up to a thousand operations.
const GUEST_FILES: u32 = 8192;

/// The period in which processor time is counted, in microseconds.
const PERIOD: i64 = 100_000;

/// The number of bytes per inode: in-memory file systems need few inodes.
const BYTES_PER_INODE: u64 = 4096;

/// The in-memory file systems of every container.
pub(crate) const OWN_MEMORY: [&str; 3] = ["/tmp", "/var/tmp", HOME];

/// A bind mount of a host file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BindMount {
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) access: Access,
}

/// The settings of a container.
#[derive(Debug)]
pub(crate) struct ContainerSpec<'a> {
    pub(crate) engine: EngineKind,
    pub(crate) image: &'a ImageInfo,
    pub(crate) limits: &'a Limits,
    pub(crate) user: &'a str,
    pub(crate) ids: Option<(u32, u32)>,
    pub(crate) user_namespace: Option<&'a str>,
    pub(crate) runtime: Option<&'a str>,
    /// The system-call filter, in the form of this engine.
    pub(crate) seccomp: &'a str,
    pub(crate) mounts: &'a [BindMount],
    /// The volumes of the image, which get in-memory file systems.
    pub(crate) tmpfs: &'a [String],
    /// Whether the machine has IPv6.
    pub(crate) has_ipv6: bool,
    /// The maximum number of processes of one user on the host.
    pub(crate) max_processes: u64,
}

impl ContainerSpec<'_> {
    /// A digest of the settings that containers of the same image, user and volumes share. It does not depend on the
    /// session.
    pub(crate) fn digest(&self, options: &DockerOptions, tenant: Option<&TenantId>) -> Digest {
        let targets: Vec<_> = self.mounts.iter().map(|mounts| (&mounts.target, mounts.access)).collect();
        spec_digest(&BTreeMap::from([
            ("image", self.image.id.clone()),
            ("limits", format!("{:?}", self.limits)),
            ("runtime", format!("{:?}", self.runtime)),
            ("targets", format!("{targets:?}")),
            ("engine", format!("{:?}", self.engine)),
            ("user", format!("{:?} {:?}", options.user, self.user_namespace)),
            ("volumes", format!("{:?}", options.volumes)),
            ("tenant", format!("{tenant:?}")),
            ("seccomp", Digest::of_bytes(self.seccomp.as_bytes()).to_hex()),
        ]))
    }

    /// The create request.
    pub(crate) fn body(&self, labels: HashMap<String, String>) -> ContainerCreateBody {
        ContainerCreateBody {
            image: Some(self.image.id.clone()),
            labels: Some(labels),
            hostname: Some(HOSTNAME.to_owned()),
            user: Some(self.user.to_owned()),
            // These replace the entry point and health check of the image.
            entrypoint: Some(vec![GUEST.to_owned()]),
            cmd: Some(Vec::new()),
            healthcheck: Some(HealthConfig {
                test: Some(vec!["NONE".to_owned()]),
                ..HealthConfig::default()
            }),
            // This replaces the image's working directory.
            working_dir: Some("/".to_owned()),
            // A terminal would change the frames. When the host ends, the guest must see the end of its stream.
            tty: Some(false),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            open_stdin: Some(true),
            stdin_once: Some(true),
            host_config: Some(self.host_config()),
            ..ContainerCreateBody::default()
        }
    }

    fn host_config(&self) -> HostConfig {
        let limits = self.limits;
        let memory = number(limits.memory());
        HostConfig {
            // Resources.
            memory: Some(memory),
            memory_swap: Some(memory),
            cpu_period: Some(PERIOD),
            cpu_quota: Some(i64::from(limits.millicpus()) * PERIOD / 1000),
            pids_limit: Some(limits.processes().into()),
            ulimits: Some(self.ulimits()),
            shm_size: Some(number(limits.tmp() / 4)),
            // Privileges.
            privileged: Some(false),
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(vec!["no-new-privileges".to_owned(), format!("seccomp={}", self.seccomp)]),
            // File systems and network.
            readonly_rootfs: Some(true),
            mounts: Some(self.mounts.iter().map(mount).collect()),
            tmpfs: Some(self.memory_file_systems()),
            network_mode: Some("none".to_owned()),
            // Engines disable IPv6 where there is no network interface. Programs that listen on `::1` need it.
            sysctls: self
                .has_ipv6
                .then(|| HashMap::from([("net.ipv6.conf.lo.disable_ipv6".to_owned(), "0".to_owned())])),
            ipc_mode: Some("private".to_owned()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
            userns_mode: self.user_namespace.map(str::to_owned),
            // Only the host controls the life of the container.
            init: Some(false),
            auto_remove: Some(false),
            restart_policy: Some(RestartPolicy {
                name: Some(RestartPolicyNameEnum::NO),
                ..RestartPolicy::default()
            }),
            // The engine would log every frame before it passes the frame on.
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
            runtime: self.runtime.map(str::to_owned),
            ..HostConfig::default()
        }
    }

    /// The resource limits of the container. They set no limit of their own for `nproc`, which counts all processes
    /// of the user on the machine. Podman sets a default that a root without `CAP_SYS_RESOURCE` may not use. So
    /// Podman gets the limit that applies anyway.
    fn ulimits(&self) -> Vec<ResourcesUlimits> {
        let files = i64::from(self.limits.open_files());
        let longest = number(self.limits.disk());
        let most = (self.engine == EngineKind::Podman).then(|| number(self.max_processes));
        [("nofile", files, files.max(GUEST_FILES.into())), ("fsize", longest, longest), ("core", 0, 0)]
            .into_iter()
            .chain(most.map(|most| ("nproc", most, most)))
            .map(|(name, soft, hard)| ResourcesUlimits {
                name: Some(name.to_owned()),
                soft: Some(soft),
                hard: Some(hard),
            })
            .collect()
    }

    /// The writable in-memory file systems, each with a size limit. Volumes of the image get one, too. On disk, they
    /// would have no size limit and would outlive the container.
    fn memory_file_systems(&self) -> HashMap<String, String> {
        let tmp = self.limits.tmp();
        let [own_tmp, own_var_tmp, own_home] = OWN_MEMORY;
        let own = [
            (own_tmp, tmp * 3 / 8, TmpfsOwner::AnyUser),
            (own_var_tmp, tmp / 8, TmpfsOwner::AnyUser),
            (own_home, tmp / 4, TmpfsOwner::SandboxUser),
        ];
        let volumes = self.tmpfs.iter().map(|path| (path.as_str(), tmp / 4, TmpfsOwner::AnyUser));
        volumes
            .chain(own)
            .map(|(path, bytes, whose)| (path.to_owned(), self.memory_file_system(bytes, whose)))
            .collect()
    }

    fn memory_file_system(&self, bytes: u64, whose: TmpfsOwner) -> String {
        let common = format!("rw,exec,nosuid,nodev,size={bytes}");
        match (self.engine, whose, self.ids) {
            (EngineKind::Docker, TmpfsOwner::SandboxUser, Some((user, group))) => {
                format!("{common},nr_inodes={},mode=0755,uid={user},gid={group}", inodes(bytes))
            }
            (EngineKind::Docker, ..) => format!("{common},nr_inodes={},mode=1777", inodes(bytes)),
            // Podman supports fewer options here. By default it would copy the image's files into the file system.
            (EngineKind::Podman, ..) => format!("{common},mode=1777,notmpcopyup"),
        }
    }
}

/// The owner of an in-memory file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TmpfsOwner {
    SandboxUser,
    AnyUser,
}

fn inodes(bytes: u64) -> u64 {
    (bytes / BYTES_PER_INODE).max(64)
}

fn number(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Converts a bind mount. Mounts beneath a read-only directory are not included, because engines make only the top
/// directory read-only.
fn mount(mounts: &BindMount) -> Mount {
    let is_fixed = mounts.access == Access::ReadOnly;
    Mount {
        typ: Some(MountType::BIND),
        source: Some(mounts.source.clone()),
        target: Some(mounts.target.clone()),
        read_only: Some(is_fixed),
        bind_options: is_fixed
            .then(|| MountBindOptions { non_recursive: Some(true), ..MountBindOptions::default() }),
        ..Mount::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(engine: EngineKind, volumes: &[&str]) -> ContainerCreateBody {
        with_spec(engine, volumes, |spec| spec.body(HashMap::new()))
    }

    fn with_spec<T>(engine: EngineKind, volumes: &[&str], make: impl FnOnce(&ContainerSpec<'_>) -> T) -> T {
        let image = ImageInfo { id: "sha256:1".to_owned(), ..ImageInfo::default() };
        let tmpfs: Vec<String> = volumes.iter().map(|path| (*path).to_owned()).collect();
        let mounts = ["/workspace", "/mnt/skills"].map(|target| BindMount {
            source: format!("/host{target}"),
            target: target.to_owned(),
            access: if target == "/workspace" { Access::ReadWrite } else { Access::ReadOnly },
        });
        let spec = ContainerSpec {
            engine,
            image: &image,
            limits: &Limits::default(),
            user: "7:8",
            ids: Some((7, 8)),
            user_namespace: None,
            runtime: Some("runsc"),
            seccomp: "{}",
            mounts: &mounts,
            tmpfs: &tmpfs,
            has_ipv6: true,
            max_processes: 1000,
        };
        make(&spec)
    }

    #[test]
    fn what_is_the_connectors_tells_containers_apart() {
        let of = |options: &DockerOptions, tenant: Option<&TenantId>| {
            with_spec(EngineKind::Docker, &[], |spec| spec.digest(options, tenant)).to_hex()
        };
        let plain = DockerOptions::default();
        let volume = |host: &str| vec![format!("{host}:/data").parse().unwrap()];
        let all = [
            plain.clone(),
            DockerOptions { user: Some("1000".to_owned()), ..plain.clone() },
            DockerOptions { volumes: volume("/srv/one"), ..plain.clone() },
            DockerOptions { volumes: volume("/srv/other"), ..plain.clone() },
        ];
        let mut digests: std::collections::BTreeSet<_> =
            all.iter().map(|options| of(options, None)).collect();
        digests.insert(of(&plain, Some(&TenantId::new("acme").unwrap())));
        assert_eq!(digests.len(), all.len() + 1);
    }

    #[test]
    fn a_container_is_hardened_as_it_must_be() {
        let body = body(EngineKind::Docker, &[]);
        assert_eq!(body.user.as_deref(), Some("7:8"));
        assert_eq!((body.tty, body.stdin_once), (Some(false), Some(true)));
        let host = body.host_config.unwrap();
        assert_eq!(host.cap_drop, Some(vec!["ALL".to_owned()]));
        assert_eq!(host.security_opt, Some(vec!["no-new-privileges".to_owned(), "seccomp={}".to_owned()]));
        assert_eq!((host.readonly_rootfs, host.privileged), (Some(true), Some(false)));
        assert_eq!((host.memory, host.memory_swap), (Some(512 << 20), Some(512 << 20)));
        assert_eq!((host.cpu_quota, host.cpu_period), (Some(100_000), Some(100_000)));
        assert_eq!(host.pids_limit, Some(256));
        assert_eq!((host.network_mode.as_deref(), host.ipc_mode.as_deref()), (Some("none"), Some("private")));
        assert_eq!(host.log_config.unwrap().typ.as_deref(), Some("none"));
        assert_eq!(host.runtime.as_deref(), Some("runsc"));
        let ulimits = host.ulimits.unwrap();
        let names: Vec<_> = ulimits.iter().filter_map(|limit| limit.name.as_deref()).collect();
        assert_eq!(names, ["nofile", "fsize", "core"]);
        let read_only: Vec<_> = host.mounts.unwrap().iter().map(|mount| mount.read_only).collect();
        assert_eq!(read_only, [Some(false), Some(true)]);
        // What would share something with the host or with others.
        assert_eq!((host.pid_mode, host.uts_mode, host.binds, host.devices), (None, None, None, None));
    }

    #[test]
    fn volumes_that_an_image_wants_are_memory_of_a_size() {
        let host = body(EngineKind::Docker, &["/data"]).host_config.unwrap();
        let mut mounts: Vec<_> = host.tmpfs.unwrap().into_iter().collect();
        mounts.sort();
        let paths: Vec<_> = mounts.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["/data", "/home/sandbox", "/tmp", "/var/tmp"]);
        assert_eq!(mounts[1].1, "rw,exec,nosuid,nodev,size=67108864,nr_inodes=16384,mode=0755,uid=7,gid=8");
        assert!(mounts.iter().all(|(_, options)| options.contains("size=")));
        let podman = body(EngineKind::Podman, &[]).host_config.unwrap();
        let most = podman.ulimits.unwrap().pop().unwrap();
        assert_eq!((most.name.as_deref(), most.soft, most.hard), (Some("nproc"), Some(1000), Some(1000)));
        let podman = podman.tmpfs.unwrap();
        assert_eq!(podman["/tmp"], "rw,exec,nosuid,nodev,size=100663296,mode=1777,notmpcopyup");
    }
}

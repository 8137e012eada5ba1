//! [`VolumeContainer`]: the files of a container, for an engine that cannot mount the host's directories. They are in
//! a volume of the engine, which is filled from an archive before the container is created.
//!
//! The volume belongs to a second container, which is created and never started: the engine's API puts files only
//! into a container, and only an anonymous volume is removed with its container. The sandbox's container mounts the
//! directories of the volume as it would mount those of the host: the same paths, the same hardening. The content
//! directories are mounted twice: read-only at the paths of commands, and writable for the guest beside its program,
//! where Landlock permits the guest alone to write.
//!
//! State: two containers with the same labels. Removing the volume container removes the volume.

use std::collections::HashMap;
use std::io;

use bollard::models::{ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountPoint, MountType};
use conjure_guest::protocol::Access;

use super::tar::TarWriter;
use crate::content::ContentDir;
use crate::docker::container::container_spec::{BindMount, GUEST};
use crate::docker::container::container_user::ContainerUser;
use crate::docker::container::seccomp_profile;
use crate::docker::engine::engine_info::EngineKind;
use crate::docker::engine::error_map::no_engine;
use crate::error::SandboxError;
use crate::guest_process::program;
use crate::jail::{OUTPUT, WORKSPACE};

/// The mount point of the volume in the volume container; the guest's program and the content directories are there in
/// the sandbox.
pub(super) const VOLUME: &str = "/.conjure";

/// Where the guest writes the content directories.
pub(super) const CONTENT_ROOT: &str = "/.conjure/shelves";

/// The system-call filter, for engines that take a path.
const SECCOMP: &str = "seccomp.json";

/// The archive that fills the volume, and the mounts of the sandbox's container.
#[derive(Debug)]
pub(super) struct VolumeContainer {
    pub(super) archive: Vec<u8>,
    /// The mounts. Their sources are relative to the volume.
    pub(super) mounts: Vec<BindMount>,
}

impl VolumeContainer {
    /// Creates the archive and the mounts for a container with this user.
    pub(super) fn for_user(user: &ContainerUser, names: Option<(String, String)>) -> io::Result<Self> {
        let mut archive = TarWriter::default().file_with_mode("guest", &program()?, 0o555).file_with_mode(
            SECCOMP,
            seccomp_profile::profile().to_string().as_bytes(),
            0o444,
        );
        // When the ids of the user are unknown, every user in the container may write. Only that user runs there.
        let (owner, mode) = user.ids.map_or(((0, 0), 0o777), |ids| (ids, 0o755));
        for dir in ["shelves", "shelves/skills", "shelves/artifacts", "output"] {
            archive = archive.dir(dir, owner, mode);
        }
        // The mode is that of a session's workspace on this machine.
        archive = archive.dir("workspace", owner, if mode == 0o755 { 0o700 } else { mode });
        let mounts = |source: &str, target: &str, access| BindMount {
            source: source.to_owned(),
            target: target.to_owned(),
            access,
        };
        let mut all = vec![
            mounts("guest", GUEST, Access::ReadOnly),
            mounts("shelves", CONTENT_ROOT, Access::ReadWrite),
            mounts("shelves/skills", ContentDir::Skills.path(), Access::ReadOnly),
            mounts("shelves/artifacts", ContentDir::Artifacts.path(), Access::ReadOnly),
            mounts("output", OUTPUT, Access::ReadWrite),
            mounts("workspace", WORKSPACE, Access::ReadWrite),
        ];
        if let Some((passwd, group)) = names {
            for (name, content) in [("passwd", passwd), ("group", group)] {
                archive = archive.file_with_mode(name, content.as_bytes(), 0o444);
                all.push(mounts(name, &format!("/etc/{name}"), Access::ReadOnly));
            }
        }
        Ok(Self { archive: archive.finish(), mounts: all })
    }
}

/// The request for the container that has the volume and is never started.
pub(super) fn create_body(image: &str, labels: HashMap<String, String>) -> ContainerCreateBody {
    let volume = Mount {
        typ: Some(MountType::VOLUME),
        target: Some(VOLUME.to_owned()),
        read_only: Some(false),
        ..Mount::default()
    };
    ContainerCreateBody {
        image: Some(image.to_owned()),
        labels: Some(labels),
        entrypoint: Some(vec![GUEST.to_owned()]),
        cmd: Some(Vec::new()),
        host_config: Some(HostConfig {
            mounts: Some(vec![volume]),
            network_mode: Some("none".to_owned()),
            cap_drop: Some(vec!["ALL".to_owned()]),
            readonly_rootfs: Some(true),
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

/// The path of the volume on the engine's machine.
pub(super) fn volume_of(mounts: Option<Vec<MountPoint>>) -> Result<String, SandboxError> {
    let ours = |mount: &MountPoint| {
        mount.destination.as_deref() == Some(VOLUME) && mount.typ.as_deref() == Some("volume")
    };
    let found = mounts.unwrap_or_default().into_iter().find(ours).and_then(|mount| mount.source);
    found.filter(|source| source.starts_with('/')).ok_or_else(|| {
        no_engine(
            "it does not report the paths of its volumes, and content can be given to containers by volumes alone",
        )
    })
}

/// Makes the sources of the mounts absolute: paths in the volume.
pub(super) fn locate(body: &mut ContainerCreateBody, engine: EngineKind, volume: &str) {
    let Some(config) = &mut body.host_config else { return };
    for mount in config.mounts.iter_mut().flatten() {
        if let Some(source) = &mut mount.source {
            *source = format!("{volume}/{source}");
        }
    }
    if engine == EngineKind::Podman {
        for option in config.security_opt.iter_mut().flatten().filter(|option| option.starts_with("seccomp="))
        {
            *option = format!("seccomp={volume}/{SECCOMP}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(typ: &str, source: &str) -> MountPoint {
        MountPoint {
            typ: Some(typ.to_owned()),
            source: Some(source.to_owned()),
            destination: Some(VOLUME.to_owned()),
            ..MountPoint::default()
        }
    }

    #[test]
    fn a_volume_that_is_nowhere_is_none() {
        let good = mount("volume", "/var/lib/volumes/1/_data");
        assert_eq!(volume_of(Some(vec![good])).unwrap(), "/var/lib/volumes/1/_data");
        for mounts in [None, Some(vec![mount("bind", "/etc")]), Some(vec![mount("volume", "")])] {
            assert!(volume_of(mounts).unwrap_err().to_string().contains("the paths of its volumes"));
        }
    }

    #[test]
    fn a_container_has_nothing_but_the_volumes_directories() {
        let mounts =
            BindMount { source: "output".to_owned(), target: OUTPUT.to_owned(), access: Access::ReadWrite };
        let mounts =
            vec![Mount { source: Some(mounts.source), target: Some(mounts.target), ..Mount::default() }];
        for (engine, seccomp) in
            [(EngineKind::Docker, "seccomp={}"), (EngineKind::Podman, "seccomp=/v/seccomp.json")]
        {
            let mut body = ContainerCreateBody {
                host_config: Some(HostConfig {
                    mounts: Some(mounts.clone()),
                    security_opt: Some(vec!["no-new-privileges".to_owned(), "seccomp={}".to_owned()]),
                    ..HostConfig::default()
                }),
                ..ContainerCreateBody::default()
            };
            locate(&mut body, engine, "/v");
            let config = body.host_config.unwrap();
            assert_eq!(config.mounts.unwrap()[0].source.as_deref(), Some("/v/output"));
            assert_eq!(config.security_opt.unwrap(), ["no-new-privileges", seccomp]);
        }
    }
}

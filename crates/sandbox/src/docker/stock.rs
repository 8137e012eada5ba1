//! What a container is made of where the engine has none of the host's folders: a volume of the engine's own, filled by an
//! archive before the container is made.
//!
//! The volume belongs to a second container, the *stock*, which is made and never started: only into a container does the
//! engine's API put files, and only such a volume goes with a container, whoever removes it. Of the volume's folders the
//! sandbox's container gets mounts, as it gets them of the host's where there are some: the same places, the same hardening.
//! The shelves are mounted twice: for reading only where commands look, and for the guest beside its program, where Landlock
//! lets it alone write.
//!
//! State: two containers with the same labels. Removing the stock removes the volume.

use std::collections::HashMap;

use bollard::models::{ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountPoint, MountType};
use conjure_guest::protocol::Access;

use super::archive::Archive;
use super::facts::EngineKind;
use super::failure::no_engine;
use super::people::People;
use super::seccomp;
use super::spec::{Bound, GUEST};
use crate::error::SandboxError;
use crate::guest_process::program;
use crate::jail::{OUTPUT, WORKSPACE};
use crate::provision::Shelf;

/// Where the stock has the volume, and the guest its program and the shelves.
pub(super) const VOLUME: &str = "/.conjure";

/// Where the guest writes the shelves.
pub(super) const SHELVES: &str = "/.conjure/shelves";

/// The filter of system calls, for engines that take a path.
const SECCOMP: &str = "seccomp.json";

/// What fills the volume, and what of it a container gets.
#[derive(Debug)]
pub(super) struct Stock {
    pub(super) archive: Vec<u8>,
    /// By paths relative to the volume.
    pub(super) bound: Vec<Bound>,
}

impl Stock {
    /// For a container of these people.
    pub(super) fn of(people: &People, names: Option<(String, String)>) -> Self {
        let mut archive = Archive::default().fixed("guest", program(), 0o555).fixed(
            SECCOMP,
            seccomp::profile().to_string().as_bytes(),
            0o444,
        );
        // Where the numbers are the image's secret, everybody in the container, which is them.
        let (owner, mode) = people.numbers.map_or(((0, 0), 0o777), |numbers| (numbers, 0o755));
        for folder in ["shelves", "shelves/skills", "shelves/artifacts", "output"] {
            archive = archive.folder(folder, owner, mode);
        }
        // As a session's own on this machine.
        archive = archive.folder("workspace", owner, if mode == 0o755 { 0o700 } else { mode });
        let bound = |source: &str, target: &str, access| Bound {
            source: source.to_owned(),
            target: target.to_owned(),
            access,
        };
        let mut all = vec![
            bound("guest", GUEST, Access::ReadOnly),
            bound("shelves", SHELVES, Access::ReadWrite),
            bound("shelves/skills", Shelf::Skills.path(), Access::ReadOnly),
            bound("shelves/artifacts", Shelf::Artifacts.path(), Access::ReadOnly),
            bound("output", OUTPUT, Access::ReadWrite),
            bound("workspace", WORKSPACE, Access::ReadWrite),
        ];
        if let Some((passwd, group)) = names {
            for (name, content) in [("passwd", passwd), ("group", group)] {
                archive = archive.fixed(name, content.as_bytes(), 0o444);
                all.push(bound(name, &format!("/etc/{name}"), Access::ReadOnly));
            }
        }
        Self { archive: archive.finish(), bound: all }
    }
}

/// A container that has the volume and is never started.
pub(super) fn stock_body(image: &str, labels: HashMap<String, String>) -> ContainerCreateBody {
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

/// Where the engine has the volume on its machine.
pub(super) fn volume_of(mounts: Option<Vec<MountPoint>>) -> Result<String, SandboxError> {
    let ours = |mount: &MountPoint| {
        mount.destination.as_deref() == Some(VOLUME) && mount.typ.as_deref() == Some("volume")
    };
    let found = mounts.unwrap_or_default().into_iter().find(ours).and_then(|mount| mount.source);
    found.filter(|source| source.starts_with('/')).ok_or_else(|| {
        no_engine(
            "it does not tell where its volumes lie, and content can be given to containers by volumes alone",
        )
    })
}

/// Names what a container is made of as the engine has it: in the volume.
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
            assert!(volume_of(mounts).unwrap_err().to_string().contains("where its volumes lie"));
        }
    }

    #[test]
    fn a_container_has_nothing_but_the_volumes_folders() {
        let bound =
            Bound { source: "output".to_owned(), target: OUTPUT.to_owned(), access: Access::ReadWrite };
        let mounts =
            vec![Mount { source: Some(bound.source), target: Some(bound.target), ..Mount::default() }];
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

//! The hardening of a container, as the engine reports it.

use std::os::unix::fs::chown;

use bollard::models::{HostConfigCgroupnsModeEnum, RestartPolicyNameEnum};
use conjure_sandbox::Executor;

use crate::container_fixture::ContainerFixture;

#[tokio::test]
async fn the_engine_confirms_the_hardening_of_a_container() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let connector = fixture.connector();
    let it = fixture
        .container_with(&connector, |context| chown(&context.workspace, Some(4321), Some(1234)).unwrap())
        .await;
    let found = fixture.inspected().await;
    let host = found.host_config.unwrap();
    let config = found.config.unwrap();
    assert_eq!(host.cap_drop, Some(vec!["ALL".to_owned()]));
    assert_eq!((host.cap_add, host.devices.filter(|it| !it.is_empty())), (None, None));
    assert_eq!((host.readonly_rootfs, host.privileged), (Some(true), Some(false)));
    assert_eq!((host.memory, host.memory_swap), (Some(512 << 20), Some(512 << 20)));
    assert_eq!(host.cpu_quota.unwrap() / host.cpu_period.unwrap(), 1);
    assert_eq!(host.pids_limit, Some(256));
    assert_eq!((host.network_mode.as_deref(), host.ipc_mode.as_deref()), (Some("none"), Some("private")));
    assert_eq!(host.cgroupns_mode, Some(HostConfigCgroupnsModeEnum::PRIVATE));
    assert_eq!((host.pid_mode.as_deref(), host.uts_mode.as_deref()), (Some(""), Some("")));
    assert_eq!(host.log_config.unwrap().typ.as_deref(), Some("none"));
    assert_eq!(host.restart_policy.unwrap().name, Some(RestartPolicyNameEnum::NO));
    assert_eq!((host.auto_remove, host.shm_size), (Some(false), Some(64 << 20)));
    let security = host.security_opt.unwrap();
    assert!(security.contains(&"no-new-privileges".to_owned()));
    assert!(security.iter().any(|option| option.starts_with("seccomp={") && option.contains("clone3")));
    let mut ulimits: Vec<_> = host.ulimits.unwrap().into_iter().filter_map(|limit| limit.name).collect();
    ulimits.sort();
    assert_eq!(ulimits, ["core", "fsize", "nofile"]);
    assert_eq!(config.tty, Some(false));
    assert_eq!(config.user.as_deref(), Some("4321:1234"));
    assert_eq!(config.healthcheck.unwrap().test, Some(vec!["NONE".to_owned()]));
    let labels = config.labels.unwrap();
    for label in ["managed-by", "instance", "owner", "boot", "created", "lease", "spec"] {
        assert!(labels.contains_key(&format!("conjure.{label}")), "{label}");
    }
    // No directory of the host's but those that are meant.
    let mut targets: Vec<_> =
        found.mounts.unwrap().into_iter().filter_map(|mount| mount.destination).collect();
    targets.sort();
    assert_eq!(
        targets,
        [
            "/.conjure/conjure-guest",
            "/artifacts",
            "/etc/group",
            "/etc/passwd",
            "/mnt/skills",
            "/output",
            "/workspace"
        ]
    );
    it.sandbox.cleanup().await;
}

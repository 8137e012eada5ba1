//! The hardening of a container, as Podman reports it.

use std::os::unix::fs::chown;

use bollard::models::RestartPolicyNameEnum;
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
    // It names all that are dropped, one by one.
    let dropped = host.cap_drop.unwrap();
    for name in ["CHOWN", "DAC_OVERRIDE", "KILL", "MKNOD", "NET_RAW", "SETFCAP", "SETUID", "SYS_CHROOT"] {
        assert!(dropped.iter().any(|one| one.ends_with(name)), "{name} in {dropped:?}");
    }
    assert_eq!((host.cap_add.unwrap(), host.devices.unwrap()), (vec![], vec![]));
    assert_eq!((host.readonly_rootfs, host.privileged), (Some(true), Some(false)));
    assert_eq!((host.memory, host.memory_swap), (Some(512 << 20), Some(512 << 20)));
    assert_eq!(host.cpu_quota.unwrap() / host.cpu_period.unwrap(), 1);
    assert_eq!(host.pids_limit, Some(256));
    assert_eq!(host.network_mode.as_deref(), Some("none"));
    // Its own, which no other container is made to share.
    assert_ne!(host.ipc_mode.as_deref(), Some("host"));
    assert_eq!((host.pid_mode.as_deref(), host.uts_mode.as_deref()), (Some("private"), Some("private")));
    assert_eq!(host.log_config.unwrap().typ.as_deref(), Some("none"));
    assert_eq!(host.restart_policy.unwrap().name, Some(RestartPolicyNameEnum::NO));
    assert_eq!((host.auto_remove, host.shm_size), (Some(false), Some(64 << 20)));
    let security = host.security_opt.unwrap();
    assert!(security.contains(&"no-new-privileges".to_owned()));
    let filter = security.iter().find_map(|option| option.strip_prefix("seccomp=")).unwrap();
    assert!(std::fs::read_to_string(filter).unwrap().contains("clone3"));
    let ulimits = host.ulimits.unwrap();
    let hard = |name: &str| ulimits.iter().find(|limit| limit.name.as_deref() == Some(name)).unwrap().hard;
    assert_eq!((hard("RLIMIT_CORE"), hard("RLIMIT_NOFILE")), (Some(0), Some(8192)));
    assert_eq!(hard("RLIMIT_FSIZE"), Some(1 << 30));
    assert_eq!(config.tty, Some(false));
    assert_eq!(config.user.as_deref(), Some("4321:1234"));
    let labels = config.labels.unwrap();
    for label in ["managed-by", "instance", "owner", "boot", "created", "lease", "spec"] {
        assert!(labels.contains_key(&format!("conjure.{label}")), "{label}");
    }
    // No directory of the host's but those that are meant.
    let mut targets: Vec<_> =
        found.mounts.unwrap().into_iter().filter_map(|mount| mount.destination).collect();
    targets.sort();
    let expected = [
        "/.conjure/conjure-guest",
        "/artifacts",
        "/etc/group",
        "/etc/passwd",
        "/mnt/skills",
        "/output",
        "/workspace",
    ];
    assert_eq!(targets, expected);
    it.sandbox.cleanup().await;
}

//! Any image works, or it is told what it lacks.

use std::os::unix::fs::chown;

use conjure_sandbox::{CommandEnd, Docker, DockerOptions, ExecutionContext, Executor, SandboxErrorKind};

use crate::support::image::Content;
use crate::support::options;
use crate::world::{World, open};

/// One program, which is a shell too.
pub(crate) const BUSYBOX: Content = Content {
    packages: &[],
    files: &[
        ("/bin/busybox", "/usr/bin/busybox"),
        ("/bin/busybox", "/usr/bin/sh"),
        ("/bin/busybox", "/usr/bin/id"),
    ],
    changes: &[],
};

/// One that would start something else, as root, and wants a volume. Without a health check, which Podman's import refuses: that
/// of Docker Engine has an image of its own.
const STUBBORN: Content = Content {
    packages: &[],
    files: BUSYBOX.files,
    changes: &[
        "USER root",
        "ENTRYPOINT [\"/no/such/program\"]",
        "CMD [\"and\", \"arguments\"]",
        "VOLUME /data",
        "WORKDIR /no/such/folder",
        "ENV GREETING=hello",
        "ENV HOME=/root",
        "ENV https_proxy=http://corp:3128",
    ],
};

/// One that wants a volume in the workspace.
const INTRUSIVE: Content =
    Content { packages: &[], files: BUSYBOX.files, changes: &["VOLUME /workspace/deep"] };

/// One that spells a volume in another way than the engine reads it.
const CROOKED: Content = Content { packages: &[], files: BUSYBOX.files, changes: &["VOLUME /data/../srv"] };

/// One without anything that could be run.
const EMPTY: Content = Content { packages: &[], files: &[("/etc/hostname", "/file")], changes: &[] };

#[tokio::test]
async fn an_image_of_busybox_alone_works() {
    let Some(world) = World::of(&BUSYBOX) else { return };
    let it = world.container().await;
    assert_eq!(
        it.sh("busybox echo $((6 * 7)); busybox pwd; busybox whoami").await,
        "42\n/workspace\nsandbox\n"
    );
    it.sandbox.create_file("made", b"by the guest", options()).await.unwrap();
    assert_eq!(it.sh("busybox cat made").await, "by the guest");
    let missing = it.run(&["python3", "-c", "1"]).await.unwrap_err();
    assert_eq!(missing.kind(), SandboxErrorKind::NotFound);
    assert!(missing.to_string().contains("`python3`"), "{missing}");
    it.sandbox.cleanup().await;
}

#[tokio::test]
async fn what_an_image_would_do_by_itself_is_not_done() {
    let Some(world) = World::of(&STUBBORN) else { return };
    let connector = world.connector();
    let own = |context: &mut ExecutionContext| chown(&context.workspace, Some(4321), Some(1234)).unwrap();
    let it = world.container_with(&connector, own).await;
    assert_eq!(it.sh("echo $GREETING $HOME; busybox pwd").await, "hello /home/sandbox\n/workspace\n");
    assert_eq!(it.sh("id -u").await, "4321\n");
    // The proxy of where it was built is not the sandbox's.
    assert_eq!(it.sh("echo -$https_proxy-").await, "--\n");
    // What it wants kept is memory that goes with it.
    assert_eq!(it.sh("echo x > /data/x; busybox cat /data/x").await, "x\n");
    let found = world.inspected().await;
    assert!(found.mounts.unwrap().iter().all(|mount| mount.name.as_deref().unwrap_or_default().is_empty()));
    it.sandbox.cleanup().await;
    world.until_nothing_is_left().await;
}

#[tokio::test]
async fn an_image_that_wants_a_volume_where_none_can_be_counted_is_refused() {
    for (content, told) in [(&INTRUSIVE, "`/workspace/deep`"), (&CROOKED, "`/data/../srv`")] {
        let Some(world) = World::of(content) else { return };
        let workspace = tempfile::tempdir().unwrap();
        let refused = open(&world.connector(), &ExecutionContext::new(workspace.path())).await.unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::Unavailable);
        assert!(refused.to_string().contains(&format!("wants a volume at {told}")), "{refused}");
        assert!(world.containers().await.is_empty());
        assert_eq!(std::fs::read_dir(workspace.path()).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn an_image_without_a_shell_says_so() {
    let Some(world) = World::of(&EMPTY) else { return };
    let it = world.container().await;
    let missing = it.run(&["bash", "-c", "true"]).await.unwrap_err();
    assert_eq!(missing.kind(), SandboxErrorKind::NotFound);
    assert!(missing.to_string().contains("`bash`"), "{missing}");
    // What needs no program works.
    it.sandbox.create_file("made", b"here", options()).await.unwrap();
    assert_eq!(std::fs::read(it.workspace.path().join("made")).unwrap(), b"here");
    it.sandbox.cleanup().await;
}

#[tokio::test]
async fn an_image_that_is_not_there_is_told_apart_from_an_engine_that_is_not() {
    let Some(world) = World::of(&BUSYBOX) else { return };
    let options = DockerOptions { image: "conjure-test/none:here".to_owned(), ..world.options() };
    let connector = Docker::new(options, []);
    let missing = connector.check_environment().await.unwrap_err();
    assert_eq!(missing.kind(), SandboxErrorKind::ImageNotFound);
    assert!(missing.to_string().contains("`conjure image build`"), "{missing}");
    let workspace = tempfile::tempdir().unwrap();
    let refused = open(&connector, &ExecutionContext::new(workspace.path())).await.unwrap_err();
    assert_eq!(refused, missing);
    let found = world.connector().check_environment().await.unwrap();
    assert!(found.image_id.starts_with("sha256:") && !found.version.is_empty());
}

#[tokio::test]
async fn a_runtime_that_is_not_there_is_told() {
    let Some(world) = World::of(&BUSYBOX) else { return };
    let connector = |runtime: &str| {
        Docker::new(DockerOptions { runtime: Some(runtime.to_owned()), ..world.options() }, [])
    };
    let missing = connector("no-such-runtime").check_environment().await.unwrap_err();
    assert!(missing.to_string().contains("no runtime `no-such-runtime`; it has `"), "{missing}");
    let workspace = tempfile::tempdir().unwrap();
    let context = ExecutionContext::new(workspace.path());
    let refused = open(&connector("no-such-runtime"), &context).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::Unavailable);
    assert!(refused.to_string().contains("runtime"), "{refused}");
    assert!(world.containers().await.is_empty());
    let usual = world.connector().check_environment().await.unwrap().runtime;
    let it = world.container_with(&connector(&usual), |_| {}).await;
    assert_eq!(it.run(&["sh", "-c", "exit 3"]).await.unwrap().end, CommandEnd::Exited(3));
    it.sandbox.cleanup().await;
}

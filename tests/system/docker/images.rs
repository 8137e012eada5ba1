//! Any image works, or the error names what it lacks.

use std::os::unix::fs::chown;

use conjure_sandbox::{CommandEnd, Docker, DockerOptions, ExecutionContext, Executor, SandboxErrorKind};

use crate::container_fixture::{ContainerFixture, open};
use crate::support::image::Content;
use crate::support::options;

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
        "WORKDIR /no/such/directory",
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
    let Some(fixture) = ContainerFixture::of(&BUSYBOX) else { return };
    let container = fixture.container().await;
    assert_eq!(
        container.sh("busybox echo $((6 * 7)); busybox pwd; busybox whoami").await,
        "42\n/workspace\nsandbox\n"
    );
    container.sandbox.create_file("made", b"by the guest", options()).await.unwrap();
    assert_eq!(container.sh("busybox cat made").await, "by the guest");
    let missing = container.run(&["python3", "-c", "1"]).await.unwrap_err();
    assert_eq!(missing.kind(), SandboxErrorKind::NotFound);
    assert!(missing.to_string().contains("`python3`"), "{missing}");
    container.sandbox.cleanup().await;
}

#[tokio::test]
async fn an_images_own_commands_are_not_run() {
    let Some(fixture) = ContainerFixture::of(&STUBBORN) else { return };
    let connector = fixture.connector();
    let own = |context: &mut ExecutionContext| chown(&context.workspace, Some(4321), Some(1234)).unwrap();
    let container = fixture.container_with(&connector, own).await;
    assert_eq!(container.sh("echo $GREETING $HOME; busybox pwd").await, "hello /home/sandbox\n/workspace\n");
    assert_eq!(container.sh("id -u").await, "4321\n");
    // The proxy of where it was built is not the sandbox's.
    assert_eq!(container.sh("echo -$https_proxy-").await, "--\n");
    // Its volume is in memory and removed with it.
    assert_eq!(container.sh("echo x > /data/x; busybox cat /data/x").await, "x\n");
    let found = fixture.inspected().await;
    assert!(found.mounts.unwrap().iter().all(|mount| mount.name.as_deref().unwrap_or_default().is_empty()));
    container.sandbox.cleanup().await;
    fixture.until_nothing_is_left().await;
}

#[tokio::test]
async fn an_image_with_an_uncountable_volume_is_rejected() {
    for (content, volume) in [(&INTRUSIVE, "`/workspace/deep`"), (&CROOKED, "`/data/../srv`")] {
        let Some(fixture) = ContainerFixture::of(content) else { return };
        let workspace = tempfile::tempdir().unwrap();
        let refused = open(&fixture.connector(), &ExecutionContext::new(workspace.path())).await.unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::Unavailable);
        assert!(refused.to_string().contains(&format!("wants a volume at {volume}")), "{refused}");
        assert!(fixture.containers().await.is_empty());
        assert_eq!(std::fs::read_dir(workspace.path()).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn an_image_without_a_shell_is_reported() {
    let Some(fixture) = ContainerFixture::of(&EMPTY) else { return };
    let container = fixture.container().await;
    let missing = container.run(&["bash", "-c", "true"]).await.unwrap_err();
    assert_eq!(missing.kind(), SandboxErrorKind::NotFound);
    assert!(missing.to_string().contains("`bash`"), "{missing}");
    // Operations without programs work.
    container.sandbox.create_file("made", b"here", options()).await.unwrap();
    assert_eq!(std::fs::read(container.workspace.path().join("made")).unwrap(), b"here");
    container.sandbox.cleanup().await;
}

#[tokio::test]
async fn a_missing_image_is_distinguished_from_a_missing_engine() {
    let Some(fixture) = ContainerFixture::of(&BUSYBOX) else { return };
    let options = DockerOptions { image: "conjure-test/none:here".to_owned(), ..fixture.options() };
    let connector = Docker::new(options, []);
    let missing = connector.check_environment().await.unwrap_err();
    assert_eq!(missing.kind(), SandboxErrorKind::ImageNotFound);
    assert!(missing.to_string().contains("`conjure image build`"), "{missing}");
    let workspace = tempfile::tempdir().unwrap();
    let refused = open(&connector, &ExecutionContext::new(workspace.path())).await.unwrap_err();
    assert_eq!(refused, missing);
    let found = fixture.connector().check_environment().await.unwrap();
    assert!(found.image_id.starts_with("sha256:") && !found.version.is_empty());
}

#[tokio::test]
async fn a_missing_runtime_is_reported() {
    let Some(fixture) = ContainerFixture::of(&BUSYBOX) else { return };
    let connector = |runtime: &str| {
        Docker::new(DockerOptions { runtime: Some(runtime.to_owned()), ..fixture.options() }, [])
    };
    let missing = connector("no-such-runtime").check_environment().await.unwrap_err();
    assert!(missing.to_string().contains("no runtime `no-such-runtime`; it has `"), "{missing}");
    let workspace = tempfile::tempdir().unwrap();
    let context = ExecutionContext::new(workspace.path());
    let refused = open(&connector("no-such-runtime"), &context).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::Unavailable);
    assert!(refused.to_string().contains("runtime"), "{refused}");
    assert!(fixture.containers().await.is_empty());
    let usual = fixture.connector().check_environment().await.unwrap().runtime;
    let container = fixture.container_with(&connector(&usual), |_| {}).await;
    assert_eq!(container.run(&["sh", "-c", "exit 3"]).await.unwrap().end, CommandEnd::Exited(3));
    container.sandbox.cleanup().await;
}

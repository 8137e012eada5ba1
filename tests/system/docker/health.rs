//! An image's own health check is not run in a sandbox.
//!
//! Of Docker Engine alone: Podman's import takes no such instruction, and the images that Podman makes by itself, of the OCI's
//! format, hold none.

use bollard::models::HealthStatusEnum;
use conjure_sandbox::Executor;

use crate::container_fixture::ContainerFixture;
use crate::images::BUSYBOX;
use crate::support::image::Content;

/// It would start another program, and say at once that the container is ill.
const CHECKED: Content = Content {
    packages: &[],
    files: BUSYBOX.files,
    changes: &["ENTRYPOINT [\"/no/such/program\"]", "HEALTHCHECK --interval=1s --retries=1 CMD exit 1"],
};

#[tokio::test]
async fn an_image_with_an_entry_point_and_a_health_check_works_and_neither_is_run() {
    let Some(fixture) = ContainerFixture::of(&CHECKED) else { return };
    let image = fixture.engine().await.inspect_image(&fixture.options().image).await.unwrap();
    let wanted = image.config.unwrap();
    assert_eq!(wanted.entrypoint, Some(vec!["/no/such/program".to_owned()]));
    assert_eq!(wanted.healthcheck.unwrap().interval, Some(1_000_000_000));
    let container = fixture.container().await;
    assert_eq!(container.sh("busybox echo $((6 * 7))").await, "42\n");
    let found = fixture.inspected().await;
    assert_eq!(found.config.unwrap().healthcheck.unwrap().test, Some(vec!["NONE".to_owned()]));
    let health = found.state.unwrap().health.and_then(|health| health.status);
    assert!(matches!(health, None | Some(HealthStatusEnum::NONE)), "{health:?}");
    container.sandbox.cleanup().await;
}

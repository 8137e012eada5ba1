//! Images by the names that Podman gives them.

use bollard::query_parameters::{RemoveImageOptions, TagImageOptionsBuilder};

use conjure_sandbox::{Docker, DockerOptions};

use crate::container_fixture::ContainerFixture;

/// `podman build --tag NAME` calls it `localhost/NAME`, which its service does not find by `NAME`.
#[tokio::test]
async fn an_image_that_podman_built_is_found_by_its_short_name() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let found = fixture.connector().check_environment().await.unwrap();
    let name = "conjure-test-short:here";
    let options = TagImageOptionsBuilder::new().repo("localhost/conjure-test-short").tag("here").build();
    fixture.engine().await.tag_image(&fixture.options().image, Some(options)).await.unwrap();
    let connector = Docker::new(DockerOptions { image: name.to_owned(), ..fixture.options() }, []);
    let by_short_name = connector.check_environment().await;
    let local = format!("localhost/{name}");
    fixture.engine().await.remove_image(&local, None::<RemoveImageOptions>, None).await.unwrap();
    assert_eq!(by_short_name.unwrap().image_id, found.image_id);
}

//! The image that the tests run in.

use crate::container::{docker, output_of_image};
use crate::support::image::test_image;

#[tokio::test]
async fn the_test_image_is_a_small_debian_with_python() {
    let Some(image) = test_image() else { return };
    let script = "id -u; pwd; touch here && bash -c 'echo ${BASH_VERSION%%.*}'; \
                  python3 -c 'import json, socket, ssl, ctypes; print(json.dumps([1]))'; \
                  echo a b | awk '{ print $2 }'; ps -o comm= -p 1; curl --version | grep -c libcurl; setsid true && echo all";
    let output = output_of_image(image.name(), script).await;
    assert_eq!(
        output.split_whitespace().collect::<Vec<_>>(),
        ["1000", "/workspace", "5", "[1]", "b", "sh", "1", "all"]
    );
}

#[tokio::test]
async fn the_test_image_is_removed_with_its_last_user() {
    let Some(image) = test_image() else { return };
    let name = image.name().to_owned();
    drop(test_image());
    docker().await.inspect_image(&name).await.unwrap();
}

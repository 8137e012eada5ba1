//! The engine of these tests: this machine's own.

use bollard::errors::Error;
use bollard::models::ContainerSummary;
use bollard::query_parameters::ListContainersOptions;
use conjure_sandbox::EngineAddress;

use crate::support::engine::{client, docker};
use crate::support::image::TestImage;

/// Where it listens; whether it answers is seen when it is asked.
#[expect(clippy::unnecessary_wraps, reason = "other engines may be missing")]
pub(crate) fn address() -> Option<EngineAddress> {
    Some(docker())
}

/// Images go with the last test that uses them.
pub(crate) const fn keep(_: &TestImage) {}

/// All containers that bear this label.
pub(crate) async fn labelled(engine: &EngineAddress, label: &str) -> Result<Vec<ContainerSummary>, Error> {
    let filters = Some([("label".to_owned(), vec![label.to_owned()])].into());
    let options = ListContainersOptions { all: true, filters, ..ListContainersOptions::default() };
    client(engine).await?.list_containers(Some(options)).await
}

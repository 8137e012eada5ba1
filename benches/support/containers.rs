//! The engine of this machine, an image made of this machine's own files, and containers of one run of a benchmark.
//!
//! State: the image, which its last holder removes, and the containers, which bear the mark of the run. They are removed when
//! the run is over, also when it failed or was interrupted; what one leaves that was killed, the next run removes.

use std::collections::HashMap;
use std::time::Duration;

use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptionsBuilder};
use conjure_sandbox::{Docker, DockerOptions};

use crate::engine::{client, docker};
use crate::harness::Result;
use crate::image::{TestImage, start_time, test_image};

/// The label that tells what benchmarks made: which process, and when that began.
pub(crate) const LABEL: &str = "conjure-bench";

/// Hold it until the measuring is over.
#[derive(Debug)]
pub(crate) struct Containers {
    pub(crate) image: TestImage,
    pub(crate) mark: String,
}

impl Containers {
    /// `None`, and a word about the cases that are left out, where no engine answers.
    pub(crate) fn find(cases: &str) -> Result<Option<Self>> {
        sweep()?;
        let Some(image) = test_image() else {
            println!("SKIPPED {cases}: no engine answers at its usual socket");
            return Ok(None);
        };
        let own = std::process::id();
        let mark = format!("{own}-{}", start_time(own).ok_or("this process has no start")?);
        Ok(Some(Self { image, mark }))
    }

    /// Makes sandboxes that are containers of this image.
    pub(crate) fn connector(&self) -> Docker {
        Docker::new(
            DockerOptions {
                engine: vec![docker()],
                image: self.image.name().to_owned(),
                labels: [(LABEL.to_owned(), self.mark.clone())].into(),
                ..DockerOptions::default()
            },
            [],
        )
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        if let Err(error) = apart(remove_marked(&self.mark)) {
            println!("containers with the label {LABEL}={} are left: {error}", self.mark);
        }
    }
}

/// Removes what runs have left that were killed. Where there is no engine, there is nothing.
fn sweep() -> Result<()> {
    apart(async {
        let Ok(engine) = client(&docker()).await else { return Ok(()) };
        for container in engine.list_containers(Some(labelled(LABEL))).await? {
            let Some(mark) = container.labels.and_then(|mut labels| labels.remove(LABEL)) else { continue };
            let is_alive = mark.split_once('-').is_some_and(|(pid, start)| {
                pid.parse().ok().and_then(start_time).is_some_and(|time| time == start)
            });
            if !is_alive {
                remove_marked(&mark).await?;
            }
        }
        Ok(())
    })
}

async fn remove_marked(mark: &str) -> Result<()> {
    let engine = client(&docker()).await?;
    loop {
        let left = engine.list_containers(Some(labelled(&format!("{LABEL}={mark}")))).await?;
        if left.is_empty() {
            return Ok(());
        }
        for container in left.into_iter().filter_map(|container| container.id) {
            let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
            // Somebody else may be at it, and is faster.
            let _ = engine.remove_container(&container, Some(options)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn labelled(label: &str) -> ListContainersOptions {
    ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("label".to_owned(), vec![label.to_owned()])])),
        ..ListContainersOptions::default()
    }
}

/// Waits for it on a thread and a runtime of its own: also where there is a runtime already, or none any more. A minute is
/// enough for everything that is asked here.
fn apart<T: Send>(work: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let run = || -> Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), work).await })?
    };
    std::thread::scope(|scope| scope.spawn(run).join()).map_err(|_| "asking the engine panicked")?
}

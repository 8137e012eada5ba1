//! The files of sessions: artifacts, what turns make, and workspaces away from the host.

use std::sync::Arc;

use conjure_actors::artifacts::{ArtifactServices, ContentPinner};
use conjure_actors::session::{SessionComponents, SessionFactory, SessionSetup};
use conjure_actors::supervision::Failure;
use conjure_artifact::{ArtifactIngestor, ArtifactOptions, ReferenceResolver};
use conjure_journal::SessionKey;
use conjure_store::Store;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::scenario::Scenario;

mod artifacts;
mod copy_out;
mod pinning;
mod producing;
mod uploading;

/// The scenario, whose sessions have some other components.
struct Equipped<F>(Scenario, F);

impl<F> SessionFactory for Equipped<F>
where
    F: Fn(&SessionKey, SessionComponents) -> SessionComponents + Send + Sync + 'static,
{
    fn build<'a>(&'a self, setup: SessionSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>> {
        async move {
            let key = setup.key;
            Ok(self.1(key, self.0.build(setup).await?))
        }
        .boxed()
    }
}

fn equipped<F>(scenario: &Scenario, equip: F) -> Arc<dyn SessionFactory>
where
    F: Fn(&SessionKey, SessionComponents) -> SessionComponents + Send + Sync + 'static,
{
    Arc::new(Equipped(scenario.clone(), equip))
}

fn artifact_services(
    key: &SessionKey,
    store: &Store,
    options: Arc<ArtifactOptions>,
    pinner: impl ContentPinner + 'static,
) -> ArtifactServices {
    ArtifactServices {
        ingestor: ArtifactIngestor::new(Arc::clone(&options)),
        resolver: ReferenceResolver::new(key.tenant.clone(), store.clone(), options),
        pinner: Arc::new(pinner),
        quota: Arc::new(()),
    }
}

//! Containers as the sandboxes of the egress tests.

use bollard::models::NetworkSettings;
use conjure_egress::Egress;
use conjure_sandbox::{Connector, Executor, NetworkPolicy};

use crate::container_fixture::ContainerFixture;
use crate::kind::Containers;
use crate::web::allowing;

/// The resources of a container with egress. Dropping it removes its containers.
pub(crate) struct ConnectorFixture(Containers);

impl ConnectorFixture {
    pub(crate) fn new() -> Option<Self> {
        ContainerFixture::new().map(Containers).map(Self)
    }

    /// The connector of sandboxes with this egress.
    pub(crate) fn connector(&self, egress: Egress) -> Box<dyn Connector> {
        Box::new(self.0.0.connector().with_egress(egress))
    }
}

#[tokio::test]
async fn a_container_with_egress_has_no_engine_network() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let connector = fixture.connector();
    for network in [allowing(&["example.com"], &[443]), NetworkPolicy::Full] {
        let container = fixture.container_with(&connector, |context| context.network = network).await;
        let found = fixture.inspected().await;
        assert_eq!(found.host_config.unwrap().network_mode.as_deref(), Some("none"));
        let NetworkSettings { networks, .. } = found.network_settings.unwrap();
        let networks: Vec<String> = networks.unwrap_or_default().into_keys().collect();
        assert!(networks.iter().all(|name| name == "none"), "{networks:?}");
        container.sandbox.cleanup().await;
    }
}

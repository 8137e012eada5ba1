//! Where commands run in the tests of the way out: in containers.

use bollard::models::NetworkSettings;
use conjure_egress::Egress;
use conjure_sandbox::{Connector, Executor, NetworkPolicy};

use crate::kind::Containers;
use crate::web::allowing;
use crate::world::World;

/// What a container needs beside itself. When it is dropped, its containers go.
pub(crate) struct ConnectorFixture(Containers);

impl ConnectorFixture {
    pub(crate) fn new() -> Option<Self> {
        World::new().map(Containers).map(Self)
    }

    /// What makes sandboxes with this way out.
    pub(crate) fn connector(&self, egress: Egress) -> Box<dyn Connector> {
        Box::new(self.0.0.connector().with_egress(egress))
    }
}

#[tokio::test]
async fn a_container_with_a_way_out_has_no_network_for_the_engine() {
    let Some(world) = World::new() else { return };
    let connector = world.connector();
    for network in [allowing(&["example.com"], &[443]), NetworkPolicy::Full] {
        let it = world.container_with(&connector, |context| context.network = network).await;
        let found = world.inspected().await;
        assert_eq!(found.host_config.unwrap().network_mode.as_deref(), Some("none"));
        let NetworkSettings { networks, .. } = found.network_settings.unwrap();
        let networks: Vec<String> = networks.unwrap_or_default().into_keys().collect();
        assert!(networks.iter().all(|name| name == "none"), "{networks:?}");
        it.sandbox.cleanup().await;
    }
}

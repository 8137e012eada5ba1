//! Containers that are created before their session exists.

use bollard::query_parameters::KillContainerOptions;
use conjure_sandbox::Executor as _;

use crate::container_fixture::ContainerFixture;
use crate::support::warm_sandboxes::{self, WarmSandboxFixture};

/// In directories that the engine has.
fn fixture(containers: &ContainerFixture) -> WarmSandboxFixture {
    let connector = containers.connector();
    WarmSandboxFixture::of(move |data| connector.clone().with_data(data))
}

macro_rules! shown {
    ($($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let Some(containers) = ContainerFixture::new() else { return };
                warm_sandboxes::$name(fixture(&containers)).await;
                containers.until_nothing_is_left().await;
            }
        )*
    };
}

shown! {
    a_claimed_warm_sandbox_belongs_to_the_session
    a_spare_takes_over_a_workspace_with_files
    two_tenants_of_one_pool_are_isolated
    unsupported_uses_of_a_warm_sandbox_are_rejected_harmlessly
    a_dropped_claim_leaves_nothing
    a_claimed_warm_sandbox_keeps_its_quota
}

#[tokio::test]
async fn a_dead_warm_sandbox_is_lost() {
    let Some(containers) = ContainerFixture::new() else { return };
    warm_sandboxes::a_dead_warm_sandbox_is_lost(fixture(&containers), async |_| {
        let name = containers.inspected().await.id.unwrap();
        containers.engine().await.kill_container(&name, None::<KillContainerOptions>).await.unwrap();
    })
    .await;
    containers.until_nothing_is_left().await;
}

/// Its labels cannot change any more: they say of whose host it is, and name nobody else.
#[tokio::test]
async fn a_warm_sandbox_has_no_tenant_and_no_session() {
    let Some(containers) = ContainerFixture::new() else { return };
    let fixture = fixture(&containers);
    let tenant = fixture.tenant("acme");
    let sandbox = tenant.claim(fixture.warm_sandbox().await).await.unwrap();
    let labels = containers.inspected().await.config.unwrap().labels.unwrap();
    assert_eq!((labels["conjure.tenant"].as_str(), labels["conjure.session"].as_str()), ("", ""));
    assert!(!format!("{labels:?}").contains("acme"));
    sandbox.cleanup().await;
    containers.until_nothing_is_left().await;
}

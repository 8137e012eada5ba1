//! Containers that are made before their session is there.

use bollard::query_parameters::KillContainerOptions;
use conjure_sandbox::Executor as _;

use crate::support::warm_sandboxes::{self, House};
use crate::world::World;

/// In folders that the engine has.
fn house(world: &World) -> House {
    let connector = world.connector();
    House::of(move |data| connector.clone().with_data(data))
}

macro_rules! shown {
    ($($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let Some(world) = World::new() else { return };
                warm_sandboxes::$name(house(&world)).await;
                world.until_nothing_is_left().await;
            }
        )*
    };
}

shown! {
    a_claimed_spare_is_the_sessions
    a_spare_takes_over_a_workspace_with_files
    two_tenants_of_one_pool_see_nothing_of_each_other
    what_a_spare_does_not_serve_is_refused_and_harms_nothing
    a_claim_that_is_dropped_leaves_nothing
    a_claimed_spare_keeps_its_quota
}

#[tokio::test]
async fn a_spare_that_has_died_is_lost() {
    let Some(world) = World::new() else { return };
    warm_sandboxes::a_spare_that_has_died_is_lost(house(&world), async |_| {
        let name = world.inspected().await.id.unwrap();
        world.engine().await.kill_container(&name, None::<KillContainerOptions>).await.unwrap();
    })
    .await;
    world.until_nothing_is_left().await;
}

/// Its labels cannot change any more: they say of whose host it is, and name nobody else.
#[tokio::test]
async fn a_spare_bears_no_tenant_and_no_session() {
    let Some(world) = World::new() else { return };
    let house = house(&world);
    let tenant = house.tenant("acme");
    let sandbox = tenant.claim(house.spare().await).await.unwrap();
    let labels = world.inspected().await.config.unwrap().labels.unwrap();
    assert_eq!((labels["conjure.tenant"].as_str(), labels["conjure.session"].as_str()), ("", ""));
    assert!(!format!("{labels:?}").contains("acme"));
    sandbox.cleanup().await;
    world.until_nothing_is_left().await;
}

//! What the sessions of a runtime are given, by name: with what their artifacts are taken in and found.
//!
//! State: none; how their bytes stay is said in `kept`.

use std::sync::Arc;

use conjure_actors::artifacts::{ArtifactParts, ContentKeeper};
use conjure_artifact::{ArtifactOptions, Fetch, Intake, Resolver};
use conjure_base::TenantId;
use conjure_egress::Policy;
use conjure_journal::SessionKey;
use conjure_skill::Skill;

use super::error::RuntimeError;
use super::home::TenantHome;
use super::kept::Kept;
use super::options::Record;
use super::tenants::{MeteredRoom, Meters, Policies};
use crate::config::Config;

/// What all sessions of a runtime have artifacts with.
#[derive(Clone)]
pub(crate) struct ArtifactDesk {
    options: Arc<ArtifactOptions>,
    fetch: Option<Arc<dyn Fetch>>,
    policies: Policies,
    meters: Meters,
}

impl ArtifactDesk {
    /// As the configuration and the tenants' policies say; none where sessions have no artifacts. The host may have a way out of its own.
    pub(crate) fn of(
        config: &Config,
        own: Option<Arc<dyn Fetch>>,
        policies: Policies,
        meters: Meters,
    ) -> Result<Option<Self>, RuntimeError> {
        let Some(options) = config.artifacts() else { return Ok(None) };
        let options = Arc::new(options);
        let fetch = match own {
            Some(own) => Some(own),
            None => fetch_of(&options)?,
        };
        Ok(Some(Self { options, fetch, policies, meters }))
    }

    /// The parts of one session.
    pub(crate) fn parts(
        &self,
        key: &SessionKey,
        home: &Arc<TenantHome>,
        record: Record,
        skills: Vec<Arc<Skill>>,
    ) -> ArtifactParts {
        let store = home.data.store().clone();
        let resolver = Resolver::new(key.tenant.clone(), store.clone(), Arc::clone(&self.options));
        let intake = Intake::new(Arc::clone(&self.options));
        let (intake, resolver) = match &self.fetch {
            Some(fetch) => (intake.with_fetch(Arc::clone(fetch)), resolver.with_fetch(Arc::clone(fetch))),
            None => (intake, resolver),
        };
        let (policies, tenant) = (self.policies.clone(), key.tenant.clone());
        let resolver = resolver.with_cache_quota(move || policies.of(&tenant).artifact_cache_bytes);
        let resolver = resolver.with_network(self.network_of(&key.tenant));
        let intake = intake.with_network(self.network_of(&key.tenant));
        let keeper: Arc<dyn ContentKeeper> = match record {
            Record::OnDisk => {
                let kept = Kept::of(home.data.path(), key.session, store);
                Arc::new(kept.holding(Arc::<TenantHome>::clone(home)))
            }
            Record::InMemory => Arc::new(()),
        };
        let room = Arc::new(MeteredRoom::new(self.meters.clone(), key.tenant.clone()));
        ArtifactParts { intake, resolver: resolver.with_skills(skills), keeper, room }
    }

    /// What is fetched for a tenant is held to its policy, as that is at the time.
    fn network_of(&self, tenant: &TenantId) -> impl Fn() -> Policy + Send + Sync + 'static {
        let (policies, tenant) = (self.policies.clone(), tenant.clone());
        // A policy with a list that cannot be read is not taken in the first place.
        move || policies.of(&tenant).network.policy().unwrap_or(Policy::None)
    }

    /// How many bytes are kept for a tenant of what URLs led to.
    pub(crate) fn cached(&self, tenant: &TenantId) -> u64 {
        self.fetch.as_ref().map_or(0, |fetch| fetch.kept(tenant))
    }

    /// Forgets what URLs led to for a tenant that is deleted.
    pub(crate) fn forget(&self, tenant: &TenantId) {
        if let Some(fetch) = &self.fetch {
            fetch.forget(tenant);
        }
    }
}

#[cfg(feature = "fetch")]
fn fetch_of(options: &Arc<ArtifactOptions>) -> Result<Option<Arc<dyn Fetch>>, RuntimeError> {
    use conjure_egress::Egress;
    // What is fetched is asked for by reference, whatever the network of sandboxes is. The tenant's policy is told with each request.
    let way_out = Egress::new(Policy::Full);
    let fetch =
        conjure_artifact::HttpFetch::new(Arc::clone(options), way_out, Arc::new(conjure_base::SystemClock));
    match fetch {
        Ok(fetch) => Ok(Some(Arc::new(fetch))),
        Err(error) => Err(RuntimeError::Fetch { reason: error.to_string() }),
    }
}

#[cfg(not(feature = "fetch"))]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it may fail")]
fn fetch_of(_: &Arc<ArtifactOptions>) -> Result<Option<Arc<dyn Fetch>>, RuntimeError> {
    Ok(None)
}

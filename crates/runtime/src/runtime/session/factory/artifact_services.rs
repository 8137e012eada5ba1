//! The artifact services of a runtime: they ingest, fetch and resolve the sessions' artifacts.
//!
//! State: none; `data::artifact_pins` keeps the bytes.

use std::sync::Arc;

use conjure_actors::artifacts::{ArtifactServices, ContentPinner};
use conjure_artifact::{ArtifactIngestor, ArtifactOptions, Fetch, ReferenceResolver};
use conjure_base::TenantId;
use conjure_conversation::SessionProfile;
use conjure_egress::EgressPolicy;
use conjure_journal::SessionKey;
use conjure_skill::Skill;

use crate::config::Config;
use crate::runtime::data::artifact_pins::ArtifactPins;
use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::options::JournalLocation;
use crate::runtime::session::factory::network::session_network;
use crate::runtime::tenants::{DiskUsageCache, TenantPolicies, TenantStoreQuota};

/// The artifact services that all sessions of a runtime share.
#[derive(Clone)]
pub(crate) struct RuntimeArtifacts {
    options: Arc<ArtifactOptions>,
    fetch: Option<Arc<dyn Fetch>>,
    policies: TenantPolicies,
    disk_usage: DiskUsageCache,
}

impl RuntimeArtifacts {
    /// Creates the services that the configuration and the tenants' policies describe. Returns `None` if sessions have no
    /// artifacts. If `fetch_override` is given, it replaces the built-in fetch.
    pub(crate) fn new(
        config: &Config,
        fetch_override: Option<Arc<dyn Fetch>>,
        policies: TenantPolicies,
        disk_usage: DiskUsageCache,
    ) -> Result<Option<Self>, RuntimeError> {
        let Some(options) = config.artifacts() else { return Ok(None) };
        let options = Arc::new(options);
        let fetch = match fetch_override {
            Some(fetch) => Some(fetch),
            None => default_fetch(&options)?,
        };
        Ok(Some(Self { options, fetch, policies, disk_usage }))
    }

    /// The artifact services of one session.
    pub(crate) fn session_services(
        &self,
        key: &SessionKey,
        profile: &SessionProfile,
        home: &Arc<TenantDir>,
        record: JournalLocation,
        skills: Vec<Arc<Skill>>,
    ) -> ArtifactServices {
        let store = home.data.store().clone();
        let resolver = ReferenceResolver::new(key.tenant.clone(), store.clone(), Arc::clone(&self.options));
        let ingestor = ArtifactIngestor::new(Arc::clone(&self.options));
        let (ingestor, resolver) = match &self.fetch {
            Some(fetch) => (ingestor.with_fetch(Arc::clone(fetch)), resolver.with_fetch(Arc::clone(fetch))),
            None => (ingestor, resolver),
        };
        let resolver = resolver.with_network(self.network_of(&key.tenant, profile));
        let ingestor = ingestor.with_network(self.network_of(&key.tenant, profile));
        let pinner: Arc<dyn ContentPinner> = match record {
            JournalLocation::OnDisk => {
                let pins = ArtifactPins::new(home.data.path(), key.session, store);
                Arc::new(pins.with_guard(Arc::<TenantDir>::clone(home)))
            }
            JournalLocation::InMemory => Arc::new(()),
        };
        let quota = Arc::new(TenantStoreQuota::new(self.disk_usage.clone(), key.tenant.clone()));
        ArtifactServices { ingestor, resolver: resolver.with_skills(skills), pinner, quota }
    }

    /// The network policy of a session's fetches: its tenant's policy at the time of each fetch, narrowed by the
    /// session's own limit.
    fn network_of(
        &self,
        tenant: &TenantId,
        profile: &SessionProfile,
    ) -> impl Fn() -> EgressPolicy + Send + Sync + 'static {
        let (policies, tenant, limit) = (self.policies.clone(), tenant.clone(), session_network(profile));
        move || {
            let policy = policies.policy(&tenant).network.restricted_to(&limit);
            // Only a safeguard: setting a policy already refuses lists that cannot be parsed.
            policy.and_then(|policy| policy.policy()).unwrap_or(EgressPolicy::None)
        }
    }

    /// Forgets the URL cache of a tenant that is deleted.
    pub(crate) fn forget(&self, tenant: &TenantId) {
        if let Some(fetch) = &self.fetch {
            fetch.forget_tenant(tenant);
        }
    }
}

/// This build cannot fetch URLs.
#[cfg(not(feature = "fetch"))]
#[expect(clippy::unnecessary_wraps, reason = "as in the builds that fetch")]
fn default_fetch(_: &Arc<ArtifactOptions>) -> Result<Option<Arc<dyn Fetch>>, RuntimeError> {
    Ok(None)
}

#[cfg(feature = "fetch")]
fn default_fetch(options: &Arc<ArtifactOptions>) -> Result<Option<Arc<dyn Fetch>>, RuntimeError> {
    use conjure_egress::Egress;
    // The network policy of sandboxes does not limit fetches. Each request carries its own policy.
    let egress = Egress::new(EgressPolicy::Full);
    let fetch =
        conjure_artifact::HttpFetch::new(Arc::clone(options), egress, Arc::new(conjure_base::SystemClock));
    match fetch {
        Ok(fetch) => Ok(Some(Arc::new(fetch))),
        Err(error) => Err(RuntimeError::Fetch { reason: error.to_string() }),
    }
}

//! Starting a runtime: its data folder, its journal, what dead hosts left, the tree, the skills of its folders.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::admission::{Gate, Share};
use conjure_actors::registry::CatalogSpec;
use conjure_actors::runtime as tree;
use conjure_base::{Clock as _, SessionId, SystemClock};
use conjure_journal::{MemoryJournal, Owner};

use super::artifacts::ArtifactDesk;
use super::broken_off::complete;
use super::chores::{Premises, SERVICE_FILES, chores};
use super::error::RuntimeError;
use super::handle::{Inner, Runtime};
use super::home::Home;
use super::hosts::Presence;
use super::models::Clients;
use super::options::{Record, RuntimeOptions};
use super::outfit::{Outfitter, blocking};
use super::pools::Pools;
use super::remains::Shelf;
use super::sandboxes::Sandboxes;
use super::skills::default_key;
use super::storage::Storage;
use super::sweep::{Engines, bury, sweep_groups, tidy_folders};
use super::tenants::{Gates, Policies, complete_tenants};
use super::work::Work;

/// How long the skills of the configuration's folders may take to be found.
const LOADING: Duration = Duration::from_secs(60);

/// How long it is tried at the start what is left to be deleted at services. It goes on beside whatever else is done.
const TRYING: Duration = Duration::from_secs(60);

impl Runtime {
    /// Starts a runtime, and returns when its journal is open and the skills of its folders are found.
    ///
    /// # Errors
    /// When the data folder or the journal cannot be used, or the client of the models cannot be made; each says what and where.
    pub async fn spawn(options: impl Into<RuntimeOptions>) -> Result<Self, RuntimeError> {
        let mut options: RuntimeOptions = options.into();
        let folder = options.config.data().map(std::path::Path::to_owned).or_else(|| options.data.clone());
        // What nobody finds again need not be on the disk.
        let record = if folder.is_none() { Record::InMemory } else { options.record };
        let is_shared = folder.is_some();
        let opening = move || match folder {
            Some(folder) => Home::open(&folder, record),
            None => Home::temporary(),
        };
        let home = Arc::new(blocking("the opening of the data folder", opening).await?);
        let clients = Clients::default();
        options.models.connect(&options.config, &clients)?;
        let gate =
            |given: Option<Gate>, what| given.unwrap_or_else(|| Gate::new(what, u32::MAX, Share::default()));
        let settings = options.pool.over(options.config.pool());
        let (pools, actors) = Pools::make(&options.config, settings, home.path())?;
        let policies = Policies::new(
            Gates {
                sandboxes: gate(options.sandbox_gate.take(), "the sandboxes"),
                model_calls: gate(options.model_gate.take(), "the model calls"),
                starts: pools.starts(),
            },
            std::mem::take(&mut options.standard),
            std::mem::take(&mut options.tenants),
            (clients, options.models.key_digest()),
            &options.config,
        )?;
        let storage = match record {
            Record::InMemory => Storage::Memory(MemoryJournal::new()),
            Record::OnDisk => Storage::on_disk(&home.journal(), &options).await?,
        };
        let owner = Owner::new(match options.owner.take() {
            Some(name) => name,
            None => random_name()?,
        })?;
        let presence = if is_shared { Some(announce(&home, &owner).await?) } else { None };
        let engines = Engines::of(&options);
        engines.sweep(&home).await;
        let premises = Premises::new(Arc::clone(&home), presence.clone(), engines);
        if settings.docker.is_some_and(|size| size > 0) {
            let noting = Arc::clone(&home);
            blocking("noting that there are containers", move || noting.note_containers()).await?;
        }
        let of_config = || options.config.compaction().map(Into::into);
        let compaction = options.compaction.take().or_else(of_config);
        let scopes = options.config.skill_scopes(options.project.as_deref());
        let sandboxes = Sandboxes::new(options.own, policies.clone(), &home, pools);
        let meters = sandboxes.meters().clone();
        let desk = ArtifactDesk::of(&options.config, options.fetch.take(), policies.clone(), meters)?;
        let artifacts = options.config.artifacts();
        let outfitter = Outfitter::new(
            options.config,
            Arc::clone(&home),
            options.models,
            options.tools,
            options.approver,
            sandboxes,
            desk,
        );
        outfitter.check_tools()?;
        let opener = storage.opener(policies.weights());
        let mut made =
            tree::RuntimeOptions::new(opener, Arc::new(outfitter.holding(presence.clone())), owner);
        made.sessions.compaction = compaction;
        (options.treat)(&mut made.sessions);
        made.registry = options.registry;
        made.sessions_per_tenant = options.sessions_per_tenant;
        made.metrics = options.metrics;
        made.chores = chores(&premises, options.retention, artifacts);
        made.clock = options.clock;
        let tree = tree::Runtime::spawn_with_pools(made, actors).await?;
        if let Some(bodies) = storage.bodies() {
            outfitter.count_recorded(tree.tenancy().clone(), bodies);
        }
        tree.tenancy().set_standard(policies.standard().terms().clone());
        for tenant in policies.own() {
            tree.set_terms(&tenant, Some(policies.of(&tenant).terms().clone()));
        }
        let remains = Shelf::of(&home);
        let inner = Inner { work: Work::default(), tree, outfitter, remains, storage, presence };
        let runtime = Self { inner: Arc::new(inner) };
        premises.opened(&runtime);
        if record == Record::OnDisk {
            complete_tenants(&runtime).await?;
            complete(&home, &runtime.records().await?).await?;
            // A process that lives for a moment may be all that there is.
            if !runtime.inner.remains.names().await?.is_empty() {
                let janitor = runtime.janitor().clone();
                let trying = async move {
                    // What comes of it, the janitor tells.
                    let _ = janitor.run(SERVICE_FILES, SystemClock.deadline(TRYING)).await;
                };
                runtime.inner.work.aside(trying);
            }
        }
        if let Some(key) = default_key() {
            let deadline = SystemClock.deadline(LOADING);
            let loaded = runtime.registry().register(key, CatalogSpec::of(scopes), deadline).await?;
            for diagnostic in &loaded.diagnostics {
                tracing::warn!("{diagnostic}");
            }
        }
        Ok(runtime)
    }
}

/// Shows that this process has the folder, and removes what dead ones left in it.
async fn announce(home: &Arc<Home>, owner: &Owner) -> Result<Arc<Presence>, RuntimeError> {
    let (data, owner) = (Arc::clone(home), owner.clone());
    let announcing = move || {
        let announced = Presence::announce(data.path(), &owner);
        announced.map_err(|error| RuntimeError::data(data.path(), &error))
    };
    let (presence, dead) = blocking("announcing this process", announcing).await?;
    let presence = Arc::new(presence);
    if dead.count() > 0 {
        tracing::info!(dead = dead.count(), "hosts have died; what they left is removed");
        tidy_folders(home).await?;
        sweep_groups().await?;
        bury(Arc::clone(&presence), dead).await?;
    }
    Ok(presence)
}

/// A name that no other process has.
fn random_name() -> Result<String, RuntimeError> {
    let id = SessionId::random().map_err(|error| RuntimeError::broke_off("making a name", &error))?;
    let digits = id.to_string();
    Ok(format!("host-{}-{}", std::process::id(), digits.trim_start_matches("ses_")))
}

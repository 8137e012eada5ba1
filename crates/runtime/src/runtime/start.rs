//! Starts a runtime: the data directory, the journal, the sweep after dead processes, the actors, and the skills of its
//! directories.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::admission::{AdmissionGate, Share};
use conjure_actors::catalogs::CatalogSpec;
use conjure_actors::runtime as tree;
use conjure_base::{Clock as _, SessionId, SystemClock};
use conjure_journal::{JournalError, LeaseOwner, MemoryJournal};

use crate::models::ModelClients;
use crate::runtime::data::data_layout::RuntimeDir;
use crate::runtime::data::journal_storage::JournalStorage;
use crate::runtime::data::process_lock::ProcessLock;
#[cfg(feature = "vaults")]
use crate::runtime::data::vaults::Vaults;
use crate::runtime::error::RuntimeError;
use crate::runtime::handle::{Runtime, RuntimeInner};
use crate::runtime::maintenance::{MaintenanceContext, SERVICE_FILES, maintenance_tasks};
use crate::runtime::options::{AtStart, JournalLocation, RuntimeOptions};
use crate::runtime::recover_intents::recover;
use crate::runtime::remote_cleanup::NoteStore;
use crate::runtime::sandbox_kinds::SandboxKinds;
use crate::runtime::session::factory::artifact_services::RuntimeArtifacts;
use crate::runtime::session::factory::session_factory::RuntimeSessionFactory;
#[cfg(feature = "mcp")]
use crate::runtime::session::mcp::TenantServers;
use crate::runtime::session::select_skills::default_key;
use crate::runtime::sweep::{Engines, mark_swept, sweep_cgroups, sweep_dirs};
use crate::runtime::task_set::TaskSet;
use crate::runtime::task_set::run_blocking;
use crate::runtime::tenants::{Gates, TenantPolicies, recover_tenant_deletions};
use crate::runtime::warm_pools::WarmPools;

/// How long discovering the skills of the configuration's directories may take.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the start tries, in the background, to delete what remains at models' services.
const REMOTE_CLEANUP_TIMEOUT: Duration = Duration::from_secs(60);

impl Runtime {
    /// Starts a runtime. Returns when its journal is open and the skills of its directories are loaded.
    ///
    /// # Errors
    ///
    /// If the data directory or the journal cannot be used, or if the client of the models cannot be created. Each error
    /// says what failed, and where.
    pub async fn spawn(options: impl Into<RuntimeOptions>) -> Result<Self, RuntimeError> {
        let mut options: RuntimeOptions = options.into();
        let dir = options.config.data().map(std::path::Path::to_owned).or_else(|| options.data.clone());
        // A temporary data directory cannot be found again, so nothing is recorded on the disk.
        let record = if dir.is_none() { JournalLocation::InMemory } else { options.journal_location };
        let is_shared = dir.is_some();
        let opening = move || match dir {
            Some(dir) => RuntimeDir::open(&dir, record),
            None => RuntimeDir::temporary(),
        };
        let home = Arc::new(run_blocking("the opening of the data directory", opening).await?);
        let clients = ModelClients::default();
        options.models.connect(&options.config, &clients)?;
        let gate = |given: Option<AdmissionGate>, what| {
            given.unwrap_or_else(|| AdmissionGate::new(what, u32::MAX, Share::default()))
        };
        let settings = options.pool.merged_over(options.config.pool());
        let (pools, actors) = WarmPools::new(&options.config, settings, home.path())?;
        let policies = TenantPolicies::new(
            Gates {
                sandboxes: gate(options.sandbox_gate.take(), "the sandboxes"),
                model_calls: gate(options.model_gate.take(), "the model calls"),
                starts: pools.starts(),
            },
            std::mem::take(&mut options.default_policy),
            std::mem::take(&mut options.tenants),
            (clients, options.models.key_digest()),
            &options.config,
        )?;
        let storage = match record {
            JournalLocation::InMemory => JournalStorage::Memory(MemoryJournal::new()),
            JournalLocation::OnDisk => JournalStorage::on_disk(&home.journal(), &options).await?,
        };
        let owner = LeaseOwner::new(match options.owner.take() {
            Some(name) => name,
            None => random_name()?,
        })
        .map_err(JournalError::from)?;
        let process_lock = if is_shared { Some(acquire_and_sweep(&home, &owner).await?) } else { None };
        let engines = Engines::of(&options);
        engines.sweep(&home).await;
        let context = MaintenanceContext::new(Arc::clone(&home), process_lock.clone(), engines);
        if settings.docker.is_some_and(|size| size > 0) {
            let data_dir = Arc::clone(&home);
            run_blocking("recording that there are containers", move || data_dir.note_containers()).await?;
        }
        let of_config = || options.config.compaction().map(Into::into);
        let compaction = options.compaction.take().or_else(of_config);
        let scopes = options.config.skill_scopes(options.project.as_deref());
        let sandboxes = SandboxKinds::new(options.custom_sandboxes, policies.clone(), &home, pools);
        let disk_usage = sandboxes.disk_usage().clone();
        let artifacts =
            RuntimeArtifacts::new(&options.config, options.fetch.take(), policies.clone(), disk_usage)?;
        let artifact_options = options.config.artifacts();
        let factory = RuntimeSessionFactory::new(
            options.config,
            Arc::clone(&home),
            options.models,
            options.tools,
            options.approver,
            sandboxes,
            artifacts,
        );
        factory.check_tools()?;
        #[cfg(feature = "mcp")]
        let actors = {
            let created = TenantServers::new();
            let (actor, servers) =
                created.map_err(|error| RuntimeError::interrupted("naming actors", &error))?;
            let _ = factory.tenant_servers.set(servers);
            actors.into_iter().chain([actor]).collect()
        };
        let opener = storage.opener(policies.weights());
        let mut tree_options =
            tree::TreeOptions::new(opener, Arc::new(factory.with_presence(process_lock.clone())), owner);
        tree_options.sessions.compaction = compaction;
        (options.session_options_fn)(&mut tree_options.sessions);
        tree_options.registry = options.registry;
        tree_options.metrics = options.metrics;
        tree_options.maintenance_tasks = maintenance_tasks(&context, options.retention, artifact_options);
        tree_options.clock = options.clock;
        let tree = tree::SessionRuntime::spawn_with_pools(tree_options, actors).await?;
        #[cfg(feature = "vaults")]
        let vaults = Vaults::new(home.path(), options.vault_key.take(), tree.journal().records());
        #[cfg(feature = "mcp")]
        {
            let _ = factory.vaults.set(vaults.clone());
            let _ = factory.accounts.set(tree.accounts().clone());
        }
        if let Some(bodies) = storage.blobs_dir() {
            factory.sandboxes.disk_usage().set_journal(tree.accounts().clone(), bodies);
        }
        tree.accounts().set_default(policies.default_policy().terms().clone());
        for tenant in policies.overridden() {
            tree.set_limits(&tenant, Some(policies.policy(&tenant).terms().clone()));
        }
        let notes = NoteStore::new(&home);
        let inner = RuntimeInner {
            tasks: TaskSet::default(),
            tree,
            factory,
            notes,
            storage,
            #[cfg(feature = "vaults")]
            vaults,
            process_lock,
        };
        let runtime = Self { inner: Arc::new(inner) };
        context.set_runtime(&runtime);
        if record == JournalLocation::OnDisk {
            recover_tenant_deletions(&runtime).await?;
            recover(&home, &runtime.session_reader().await?).await?;
            // This process may end before its first maintenance run, and there may be no other process. So the deletion
            // is tried now.
            if !runtime.inner.notes.names().await?.is_empty() {
                let janitor = runtime.maintenance().clone();
                let trying = async move {
                    // The janitor logs the outcome.
                    let _ = janitor.run(SERVICE_FILES, SystemClock.deadline(REMOTE_CLEANUP_TIMEOUT)).await;
                };
                runtime.inner.tasks.spawn(trying);
            }
        }
        if let Some(key) = default_key() {
            let deadline = SystemClock.deadline(LOAD_TIMEOUT);
            let loaded = runtime.registry().register(key, CatalogSpec::of(scopes), deadline).await?;
            for diagnostic in &loaded.diagnostics {
                tracing::warn!("{diagnostic}");
            }
        }
        if options.at_start == AtStart::Resume {
            runtime.spawn_resume();
        }
        Ok(runtime)
    }
}

/// Takes the process lock, and removes what dead processes left.
async fn acquire_and_sweep(
    home: &Arc<RuntimeDir>,
    owner: &LeaseOwner,
) -> Result<Arc<ProcessLock>, RuntimeError> {
    let (data, owner) = (Arc::clone(home), owner.clone());
    let acquire = move || {
        let acquired = ProcessLock::acquire(data.path(), &owner);
        acquired.map_err(|error| RuntimeError::data(data.path(), &error))
    };
    let (process_lock, dead) = run_blocking("locking the process's file", acquire).await?;
    let process_lock = Arc::new(process_lock);
    if dead.count() > 0 {
        tracing::info!(dead = dead.count(), "processes have died; their leftovers are removed");
        sweep_dirs(home).await?;
        sweep_cgroups().await?;
        mark_swept(Arc::clone(&process_lock), dead).await?;
    }
    Ok(process_lock)
}

/// A name that no other process has.
fn random_name() -> Result<String, RuntimeError> {
    let id = SessionId::random().map_err(|error| RuntimeError::interrupted("making a name", &error))?;
    let digits = id.stored_name();
    Ok(format!("host-{}-{}", std::process::id(), digits.trim_start_matches("ses_")))
}

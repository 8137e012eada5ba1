//! The actor of the catalog registry. It runs one load of each catalog at a time, and loads a catalog again when its
//! files change.
//!
//! State: the running loads and their waiting callers. After a crash of the actor, these callers get an error, and the
//! next incarnation loads everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use conjure_base::{Clock, Deadline, SystemClock};
use conjure_skill::Reload;
use tokio::sync::oneshot;

use super::catalog_entry::{CatalogEntry, CatalogSpec, Entries};
use super::catalog_key::CatalogKey;
use super::options::{RegistryError, RegistryOptions};
use super::watch_paths::watch_paths;
use super::watcher::{ChangedCatalogs, CoverageChange, Watcher};
use crate::supervision::{Context, Failure, Flow, Reply, Worker};

/// The maximum number of loads in a row. A load is repeated if directories were found that were not watched before.
const MAX_LOADS: usize = 3;

pub(crate) type Loaded = Result<Reload, RegistryError>;

/// A message to the actor.
pub(crate) enum CatalogMessage {
    Register {
        key: CatalogKey,
        spec: CatalogSpec,
        reply: Reply<Loaded>,
    },
    Unregister {
        key: CatalogKey,
        reply: Reply<Result<(), RegistryError>>,
    },
    Reload {
        key: CatalogKey,
        reply: Reply<Loaded>,
    },
    /// The files of these catalogs may have changed.
    ChangedCatalogs(ChangedCatalogs),
    /// It is time to scan the catalogs that are not watched.
    Rescan,
    /// A load has ended. `result` is `None` if it panicked.
    LoadFinished {
        key: CatalogKey,
        entry: Arc<CatalogEntry>,
        result: Option<LoadResult>,
    },
}

/// The result of a load.
pub(crate) struct LoadResult {
    reload: Reload,
    watched: WatchCoverage,
}

/// Whether file system events cover all directories of a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchCoverage {
    Full,
    Partial,
}

pub(crate) struct CatalogActor {
    entries: Arc<Entries>,
    options: RegistryOptions,
    watcher: Option<Arc<Watcher>>,
    tasks: BTreeMap<CatalogKey, CatalogTask>,
}

/// The actor's state of one catalog.
#[derive(Default)]
struct CatalogTask {
    load: LoadState,
    /// Callers that wait for the running load.
    waiting: Vec<Reply<Loaded>>,
    /// Callers that came after the load began. They wait for the next load.
    queued: Vec<Reply<Loaded>>,
    /// Whether the catalog is scanned periodically.
    is_rescanned: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum LoadState {
    #[default]
    Idle,
    Loading,
    /// A load runs, and another must follow it.
    LoadingStale,
}

impl CatalogActor {
    /// Starts watching files, and loads all registered catalogs.
    pub(crate) fn start(
        entries: Arc<Entries>,
        options: RegistryOptions,
        context: &Context<CatalogMessage>,
    ) -> Self {
        let watcher = watch(options, context);
        schedule_rescan(options, context);
        let keys: Vec<CatalogKey> =
            entries.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        let mut actor = Self { entries, options, watcher, tasks: BTreeMap::new() };
        for key in keys {
            actor.load(&key, context);
        }
        actor
    }

    fn entry(&self, key: &CatalogKey) -> Option<Arc<CatalogEntry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn register(
        &mut self,
        key: CatalogKey,
        spec: CatalogSpec,
        reply: Reply<Loaded>,
        context: &Context<CatalogMessage>,
    ) {
        {
            let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
            let spec = if key.tenant().is_some() { spec.within_scope_links() } else { spec };
            let entry = Arc::new(CatalogEntry::new(spec, entries.get(&key).map(|before| &**before)));
            entries.insert(key.clone(), entry);
        }
        self.tasks.entry(key.clone()).or_default().queued.push(reply);
        self.load(&key, context);
    }

    fn unregister(&mut self, key: &CatalogKey) -> Result<(), RegistryError> {
        let removed = self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        if let Some(watcher) = &self.watcher {
            watcher.remove(key);
        }
        if let Some(task) = self.tasks.remove(key) {
            for reply in task.waiting.into_iter().chain(task.queued) {
                reply.send(Err(RegistryError::NotFound(key.clone())));
            }
        }
        removed.map(drop).ok_or_else(|| RegistryError::NotFound(key.clone()))
    }

    fn reload(&mut self, key: CatalogKey, reply: Reply<Loaded>, context: &Context<CatalogMessage>) {
        if self.entry(&key).is_none() {
            return reply.send(Err(RegistryError::NotFound(key)));
        }
        self.tasks.entry(key.clone()).or_default().queued.push(reply);
        self.load(&key, context);
    }

    /// Starts a load, or schedules one after the running load.
    fn load(&mut self, key: &CatalogKey, context: &Context<CatalogMessage>) {
        let Some(entry) = self.entry(key) else { return };
        let task = self.tasks.entry(key.clone()).or_default();
        if task.load != LoadState::Idle {
            task.load = LoadState::LoadingStale;
            return;
        }
        task.load = LoadState::Loading;
        task.waiting = std::mem::take(&mut task.queued);
        let (done, result) = oneshot::channel();
        let load_args = (key.clone(), Arc::clone(&entry));
        let watcher = self.watcher.clone();
        let load = move || {
            let (key, entry) = load_args;
            // If the actor has ended, no caller waits for the result.
            let _ = done.send(load_watched(&key, &entry, watcher.as_deref()));
        };
        context.spawn_blocking(load).detach();
        let (key, address) = (key.clone(), context.address().clone());
        let report = async move {
            // `None` if the load panicked.
            let result = result.await.ok();
            let _ = address
                .send_with_deadline(CatalogMessage::LoadFinished { key, entry, result }, Deadline::NEVER)
                .await;
        };
        context.spawn(report).detach();
    }

    fn load_finished(
        &mut self,
        key: &CatalogKey,
        entry: &Arc<CatalogEntry>,
        result: Option<LoadResult>,
        context: &Context<CatalogMessage>,
    ) {
        // The catalog may have been unregistered meanwhile.
        let is_known = self.entry(key).is_some();
        let is_current = self.entry(key).is_some_and(|current| Arc::ptr_eq(&current, entry));
        let Some(task) = self.tasks.get_mut(key) else { return };
        if !is_known {
            self.tasks.remove(key);
            return;
        }
        let needs_reload = task.load == LoadState::LoadingStale || !is_current;
        task.load = LoadState::Idle;
        let replies = std::mem::take(&mut task.waiting);
        match result {
            // The catalog was replaced meanwhile. The waiting callers get the next load.
            _ if !is_current => task.queued.splice(0..0, replies).for_each(drop),
            Some(LoadResult { reload, watched }) => {
                task.is_rescanned = watched == WatchCoverage::Partial;
                log_reload(key, &reload);
                for reply in replies {
                    reply.send(Ok(reload.clone()));
                }
            }
            None => {
                for reply in replies {
                    reply.send(Err(RegistryError::LoadPanicked(key.clone())));
                }
            }
        }
        if needs_reload {
            self.load(key, context);
        }
    }
}

impl Worker for CatalogActor {
    type Message = CatalogMessage;

    async fn handle(
        &mut self,
        message: CatalogMessage,
        context: &Context<CatalogMessage>,
    ) -> Result<Flow, Failure> {
        match message {
            CatalogMessage::Register { key, spec, reply } => self.register(key, spec, reply, context),
            CatalogMessage::Unregister { key, reply } => reply.send(self.unregister(&key)),
            CatalogMessage::Reload { key, reply } => self.reload(key, reply, context),
            CatalogMessage::ChangedCatalogs(ChangedCatalogs::Some(keys)) => {
                keys.iter().for_each(|key| self.load(key, context));
            }
            CatalogMessage::ChangedCatalogs(ChangedCatalogs::All) => {
                let keys: Vec<CatalogKey> = self.tasks.keys().cloned().collect();
                keys.iter().for_each(|key| self.load(key, context));
            }
            CatalogMessage::Rescan => {
                let rescanned = self.tasks.iter().filter(|(_, task)| task.is_rescanned);
                let keys: Vec<CatalogKey> = rescanned.map(|(key, _)| key.clone()).collect();
                keys.iter().for_each(|key| self.load(key, context));
                schedule_rescan(self.options, context);
            }
            CatalogMessage::LoadFinished { key, entry, result } => {
                self.load_finished(&key, &entry, result, context)
            }
        }
        Ok(Flow::Continue)
    }
}

/// Loads a catalog and watches its directories. Directories that are found during the load may have changed before they
/// were watched. In that case the catalog is loaded again.
fn load_watched(key: &CatalogKey, entry: &CatalogEntry, watcher: Option<&Watcher>) -> LoadResult {
    let watch = || {
        watcher.map(|watcher| watcher.set_watches(key, watch_paths(&entry.spec.scopes, entry.spec.bounds)))
    };
    let mut coverage = watch();
    let mut first: Option<Reload> = None;
    for _ in 0..MAX_LOADS {
        let reload = entry.load();
        // The report contains the changes of all loads. Its catalog is that of the last load.
        let reload = match first.take() {
            Some(before) => merge_reloads(before, reload),
            None => reload,
        };
        coverage = watch();
        if coverage != Some(CoverageChange::Grown) {
            let watched = if coverage == Some(CoverageChange::Same) {
                WatchCoverage::Full
            } else {
                WatchCoverage::Partial
            };
            return LoadResult { reload, watched };
        }
        first = Some(reload);
    }
    let _ = coverage;
    // New directories appeared during each load, so the catalog is scanned periodically.
    LoadResult { reload: first.unwrap_or_else(|| entry.load()), watched: WatchCoverage::Partial }
}

/// Merges the reports of two reloads.
fn merge_reloads(before: Reload, now: Reload) -> Reload {
    let names = |of_before: Vec<_>, of_now: Vec<_>| {
        let both: BTreeSet<_> = of_before.into_iter().chain(of_now).collect();
        both.into_iter().collect()
    };
    Reload {
        added: names(before.added, now.added),
        changed: names(before.changed, now.changed),
        removed: names(before.removed, now.removed),
        ..now
    }
}

fn log_reload(key: &CatalogKey, reload: &Reload) {
    if !reload.is_unchanged() || !reload.broken.is_empty() {
        tracing::info!(
            catalog = %key,
            skills = reload.catalog.len(),
            added = reload.added.len(),
            changed = reload.changed.len(),
            removed = reload.removed.len(),
            broken = reload.broken.len(),
            "a catalog of skills was loaded"
        );
    }
}

fn schedule_rescan(options: RegistryOptions, context: &Context<CatalogMessage>) {
    let address = context.address().clone();
    let waiting = context.spawn(async move {
        SystemClock.sleep_until(SystemClock.deadline(options.rescan_interval)).await;
        // Waits for room in a full queue: without this message, no further scan would be scheduled.
        let _ = address.send_with_deadline(CatalogMessage::Rescan, Deadline::NEVER).await;
    });
    waiting.detach();
}

/// Watches files, and sends the actor a message when changes have settled.
fn watch(options: RegistryOptions, context: &Context<CatalogMessage>) -> Option<Arc<Watcher>> {
    let watcher = match Watcher::new(options.max_watches) {
        Ok(watcher) => Arc::new(watcher),
        Err(error) => {
            tracing::warn!(%error, "files cannot be watched; skills are scanned periodically");
            return None;
        }
    };
    let (watching, address) = (Arc::clone(&watcher), context.address().clone());
    let task = context.spawn(async move {
        loop {
            let changed = match debounced(&watching, options).await {
                Ok(changed) => changed,
                Err(error) => {
                    tracing::error!(%error, "file watching stopped");
                    return;
                }
            };
            let _ =
                address.send_with_deadline(CatalogMessage::ChangedCatalogs(changed), Deadline::NEVER).await;
        }
    });
    task.detach();
    Some(watcher)
}

/// Waits for a change, and then until changes have settled. This takes at most ten times the debounce time after the
/// first change.
async fn debounced(watcher: &Watcher, options: RegistryOptions) -> std::io::Result<ChangedCatalogs> {
    let mut changed = watcher.changed().await?;
    let latest = SystemClock.deadline(options.debounce.saturating_mul(10));
    loop {
        let quiet = SystemClock.deadline(options.debounce).min(latest);
        tokio::select! {
            biased;
            () = SystemClock.sleep_until(quiet) => return Ok(changed),
            more = watcher.changed() => changed = changed.union(more?),
        }
    }
}

//! The registry's actor: it has catalogs loaded, one load of each at a time, and again when their files change.
//!
//! State: which loads are under way and who waits for them. In a crash those callers learn that it is lost, and the next
//! incarnation loads everything.

use std::collections::BTreeMap;
#[cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use conjure_base::{Clock, Deadline, SystemClock};
use conjure_skill::Reload;
use tokio::sync::oneshot;

use super::entry::{CatalogSpec, Entries, Entry};
use super::handle::{RegistryError, RegistryOptions};
use super::key::CatalogKey;
#[cfg(target_os = "linux")]
use super::places::places;
#[cfg(target_os = "linux")]
use super::watcher::{Changed, Coverage, Watcher};
use crate::supervision::{Context, Failure, Flow, Reply, Worker};

/// So often is a catalog loaded again at once because there are folders that were not watched before.
#[cfg(target_os = "linux")]
const ROUNDS: usize = 3;

pub(crate) type Loaded = Result<Reload, RegistryError>;

/// What it understands.
pub(crate) enum RegistryMessage {
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
    /// The files of these may have changed.
    #[cfg(target_os = "linux")]
    Changed(Changed),
    /// It is time to look at what is not watched.
    Rescan,
    /// A load is over; no outcome when it broke off.
    Over {
        key: CatalogKey,
        entry: Arc<Entry>,
        outcome: Option<Outcome>,
    },
}

/// What came of a load.
pub(crate) struct Outcome {
    reload: Reload,
    watched: Watched,
}

/// Whether changes of a catalog are noticed by events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    Wholly,
    Partly,
}

pub(crate) struct RegistryActor {
    entries: Arc<Entries>,
    options: RegistryOptions,
    #[cfg(target_os = "linux")]
    watcher: Option<Arc<Watcher>>,
    tasks: BTreeMap<CatalogKey, Task>,
}

/// What the actor knows of one catalog.
#[derive(Default)]
struct Task {
    load: Load,
    /// They wait for the load that is under way.
    waiting: Vec<Reply<Loaded>>,
    /// They came later, and wait for the next one.
    queued: Vec<Reply<Loaded>>,
    /// It is to be looked at periodically.
    is_rescanned: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Load {
    #[default]
    Idle,
    Underway,
    /// Another is to follow.
    UnderwayAndDue,
}

impl RegistryActor {
    /// Begins to watch, and to load all that is registered.
    pub(crate) fn start(
        entries: Arc<Entries>,
        options: RegistryOptions,
        context: &Context<RegistryMessage>,
    ) -> Self {
        #[cfg(target_os = "linux")]
        let watcher = watch(options, context);
        rescan_again(options, context);
        let keys: Vec<CatalogKey> =
            entries.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        let mut actor = Self {
            entries,
            options,
            #[cfg(target_os = "linux")]
            watcher,
            tasks: BTreeMap::new(),
        };
        for key in keys {
            actor.load(&key, context);
        }
        actor
    }

    fn entry(&self, key: &CatalogKey) -> Option<Arc<Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn register(
        &mut self,
        key: CatalogKey,
        spec: CatalogSpec,
        reply: Reply<Loaded>,
        context: &Context<RegistryMessage>,
    ) {
        {
            let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
            let spec = if key.tenant().is_some() { spec.confined() } else { spec };
            let entry = Arc::new(Entry::new(spec, entries.get(&key).map(|before| &**before)));
            entries.insert(key.clone(), entry);
        }
        self.tasks.entry(key.clone()).or_default().queued.push(reply);
        self.load(&key, context);
    }

    fn unregister(&mut self, key: &CatalogKey) -> Result<(), RegistryError> {
        let removed = self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        #[cfg(target_os = "linux")]
        if let Some(watcher) = &self.watcher {
            watcher.forget(key);
        }
        if let Some(task) = self.tasks.remove(key) {
            for reply in task.waiting.into_iter().chain(task.queued) {
                reply.send(Err(RegistryError::NotFound(key.clone())));
            }
        }
        removed.map(drop).ok_or_else(|| RegistryError::NotFound(key.clone()))
    }

    fn reload(&mut self, key: CatalogKey, reply: Reply<Loaded>, context: &Context<RegistryMessage>) {
        if self.entry(&key).is_none() {
            return reply.send(Err(RegistryError::NotFound(key)));
        }
        self.tasks.entry(key.clone()).or_default().queued.push(reply);
        self.load(&key, context);
    }

    /// Begins a load, or has one follow the one that is under way.
    fn load(&mut self, key: &CatalogKey, context: &Context<RegistryMessage>) {
        let Some(entry) = self.entry(key) else { return };
        let task = self.tasks.entry(key.clone()).or_default();
        if task.load != Load::Idle {
            task.load = Load::UnderwayAndDue;
            return;
        }
        task.load = Load::Underway;
        task.waiting = std::mem::take(&mut task.queued);
        let (done, outcome) = oneshot::channel();
        let of_load = (key.clone(), Arc::clone(&entry));
        #[cfg(target_os = "linux")]
        let watcher = self.watcher.clone();
        let load = move || {
            let (key, entry) = of_load;
            #[cfg(target_os = "linux")]
            let outcome = load_watched(&key, &entry, watcher.as_deref());
            #[cfg(not(target_os = "linux"))]
            let outcome = {
                drop(key);
                Outcome { reload: entry.load(), watched: Watched::Partly }
            };
            // An actor that is over has nobody who waits.
            let _ = done.send(outcome);
        };
        context.spawn_blocking(load).detach();
        let (key, address) = (key.clone(), context.address().clone());
        let telling = async move {
            // It is none when the load panicked.
            let outcome = outcome.await.ok();
            let _ = address.send_by(RegistryMessage::Over { key, entry, outcome }, Deadline::NEVER).await;
        };
        context.spawn(telling).detach();
    }

    fn over(
        &mut self,
        key: &CatalogKey,
        entry: &Arc<Entry>,
        outcome: Option<Outcome>,
        context: &Context<RegistryMessage>,
    ) {
        // It may have been unregistered meanwhile.
        let is_known = self.entry(key).is_some();
        let is_current = self.entry(key).is_some_and(|current| Arc::ptr_eq(&current, entry));
        let Some(task) = self.tasks.get_mut(key) else { return };
        if !is_known {
            self.tasks.remove(key);
            return;
        }
        let is_due = task.load == Load::UnderwayAndDue || !is_current;
        task.load = Load::Idle;
        let replies = std::mem::take(&mut task.waiting);
        match outcome {
            // Whoever waits registered what took its place, or asked before that: the next load is theirs.
            _ if !is_current => task.queued.splice(0..0, replies).for_each(drop),
            Some(Outcome { reload, watched }) => {
                task.is_rescanned = watched == Watched::Partly;
                tell(key, &reload);
                for reply in replies {
                    reply.send(Ok(reload.clone()));
                }
            }
            None => {
                for reply in replies {
                    reply.send(Err(RegistryError::BrokeOff(key.clone())));
                }
            }
        }
        if is_due {
            self.load(key, context);
        }
    }
}

impl Worker for RegistryActor {
    type Message = RegistryMessage;

    async fn handle(
        &mut self,
        message: RegistryMessage,
        context: &Context<RegistryMessage>,
    ) -> Result<Flow, Failure> {
        match message {
            RegistryMessage::Register { key, spec, reply } => self.register(key, spec, reply, context),
            RegistryMessage::Unregister { key, reply } => reply.send(self.unregister(&key)),
            RegistryMessage::Reload { key, reply } => self.reload(key, reply, context),
            #[cfg(target_os = "linux")]
            RegistryMessage::Changed(Changed::Of(keys)) => {
                keys.iter().for_each(|key| self.load(key, context));
            }
            #[cfg(target_os = "linux")]
            RegistryMessage::Changed(Changed::All) => {
                let keys: Vec<CatalogKey> = self.tasks.keys().cloned().collect();
                keys.iter().for_each(|key| self.load(key, context));
            }
            RegistryMessage::Rescan => {
                let rescanned = self.tasks.iter().filter(|(_, task)| task.is_rescanned);
                let keys: Vec<CatalogKey> = rescanned.map(|(key, _)| key.clone()).collect();
                keys.iter().for_each(|key| self.load(key, context));
                rescan_again(self.options, context);
            }
            RegistryMessage::Over { key, entry, outcome } => self.over(&key, &entry, outcome, context),
        }
        Ok(Flow::Continue)
    }
}

/// Loads a catalog, and watches its folders: those that are found on the way may have changed before they were watched, so
/// then it is loaded again.
#[cfg(target_os = "linux")]
fn load_watched(key: &CatalogKey, entry: &Entry, watcher: Option<&Watcher>) -> Outcome {
    let watch = || watcher.map(|watcher| watcher.watch(key, places(&entry.spec.scopes, entry.spec.bounds)));
    let mut coverage = watch();
    let mut first: Option<Reload> = None;
    for _ in 0..ROUNDS {
        let reload = entry.load();
        // What changed is what changed in all rounds; the last one knows how it is now.
        let reload = match first.take() {
            Some(before) => joined(before, reload),
            None => reload,
        };
        coverage = watch();
        if coverage != Some(Coverage::Wider) {
            let watched =
                if coverage == Some(Coverage::AsBefore) { Watched::Wholly } else { Watched::Partly };
            return Outcome { reload, watched };
        }
        first = Some(reload);
    }
    let _ = coverage;
    // Somebody makes folders without end: then it is looked at periodically.
    Outcome { reload: first.unwrap_or_else(|| entry.load()), watched: Watched::Partly }
}

/// Two reloads as one.
#[cfg(target_os = "linux")]
fn joined(before: Reload, now: Reload) -> Reload {
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

fn tell(key: &CatalogKey, reload: &Reload) {
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

fn rescan_again(options: RegistryOptions, context: &Context<RegistryMessage>) {
    let address = context.address().clone();
    let waiting = context.spawn(async move {
        SystemClock.sleep_until(SystemClock.deadline(options.rescan)).await;
        // Also when many wait: it is to happen.
        let _ = address.send_by(RegistryMessage::Rescan, Deadline::NEVER).await;
    });
    waiting.detach();
}

/// Watches files, and tells the actor of changes when nothing more comes for a moment.
#[cfg(target_os = "linux")]
fn watch(options: RegistryOptions, context: &Context<RegistryMessage>) -> Option<Arc<Watcher>> {
    let watcher = match Watcher::new(options.watches) {
        Ok(watcher) => Arc::new(watcher),
        Err(error) => {
            tracing::warn!(%error, "files cannot be watched here; skills are looked at periodically");
            return None;
        }
    };
    let (watching, address) = (Arc::clone(&watcher), context.address().clone());
    let task = context.spawn(async move {
        loop {
            let changed = match settled(&watching, options).await {
                Ok(changed) => changed,
                Err(error) => {
                    tracing::error!(%error, "files are not watched any more");
                    return;
                }
            };
            let _ = address.send_by(RegistryMessage::Changed(changed), Deadline::NEVER).await;
        }
    });
    task.detach();
    Some(watcher)
}

/// What changed, once it has been quiet for a moment, or has not for long.
#[cfg(target_os = "linux")]
async fn settled(watcher: &Watcher, options: RegistryOptions) -> std::io::Result<Changed> {
    let mut changed = watcher.changed().await?;
    let latest = SystemClock.deadline(options.quiet.saturating_mul(10));
    loop {
        let quiet = SystemClock.deadline(options.quiet).earlier(latest);
        tokio::select! {
            biased;
            () = SystemClock.sleep_until(quiet) => return Ok(changed),
            more = watcher.changed() => changed = changed.and(more?),
        }
    }
}

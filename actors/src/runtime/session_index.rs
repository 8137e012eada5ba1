//! The index of the sessions in this process: a concurrent map, without an actor.
//!
//! It does not keep sessions alive. An entry is weak, and is removed with the last handle and actor of its session. So
//! each session has one `SessionEntry` at a time, and a passivated session without handles costs nothing here.

use std::sync::{Arc, Weak};

use conjure_journal::SessionKey;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::session::{OnDropFn, SessionEntry};

/// The sessions of a runtime by their keys.
#[derive(Debug, Default)]
pub(crate) struct SessionIndex {
    sessions: DashMap<SessionKey, Weak<SessionEntry>>,
}

impl SessionIndex {
    /// The session with this key, created if missing. `create` gets the function to call when the session is dropped.
    pub(crate) fn get_or_insert(
        self: &Arc<Self>,
        key: &SessionKey,
        create: impl FnOnce(OnDropFn) -> Arc<SessionEntry>,
    ) -> Arc<SessionEntry> {
        // Declared before the lock of the map's entry, so it is dropped after it: the last drop of a session locks the map.
        let entry;
        match self.sessions.entry(key.clone()) {
            Entry::Occupied(mut occupied) => match occupied.get().upgrade() {
                Some(found) => entry = found,
                None => {
                    entry = create(self.on_drop(key));
                    occupied.insert(Arc::downgrade(&entry));
                }
            },
            Entry::Vacant(vacant) => {
                entry = create(self.on_drop(key));
                vacant.insert(Arc::downgrade(&entry));
            }
        }
        entry
    }

    fn on_drop(self: &Arc<Self>, key: &SessionKey) -> OnDropFn {
        let (index, key) = (Arc::downgrade(self), key.clone());
        Box::new(move || {
            if let Some(index) = index.upgrade() {
                // A new entry may already have replaced it.
                index.sessions.remove_if(&key, |_, entry| entry.strong_count() == 0);
            }
        })
    }

    /// The session with this key, if it is live or has a handle.
    pub(crate) fn get(&self, key: &SessionKey) -> Option<Arc<SessionEntry>> {
        self.sessions.get(key)?.upgrade()
    }

    pub(crate) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// All sessions at this moment.
    pub(crate) fn all(&self) -> Vec<Arc<SessionEntry>> {
        // The caller drops the sessions when no shard of the map is locked. The last drop of a session locks one.
        self.sessions.iter().filter_map(|entry| entry.value().upgrade()).collect()
    }
}

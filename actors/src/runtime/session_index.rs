//! Which sessions there are in this process: a map that no actor stands in front of.
//!
//! It holds no session: an entry is weak, and is removed with the last handle and actor of its session. So there is one
//! `SessionEntry` for each session at a time, and a session that is put away and held by nobody costs nothing here.

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
    /// The session of this key, made where there is none. `create` is given what its last drop calls.
    pub(crate) fn get_or_insert(
        self: &Arc<Self>,
        key: &SessionKey,
        create: impl FnOnce(OnDropFn) -> Arc<SessionEntry>,
    ) -> Arc<SessionEntry> {
        // Dropped after the entry: the last drop of a session comes back here.
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
                // Another may have taken its place.
                index.sessions.remove_if(&key, |_, entry| entry.strong_count() == 0);
            }
        })
    }

    /// The session of this key, when it is live or somebody holds it.
    pub(crate) fn get(&self, key: &SessionKey) -> Option<Arc<SessionEntry>> {
        self.sessions.get(key)?.upgrade()
    }

    pub(crate) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// All of them, as they are now.
    pub(crate) fn all(&self) -> Vec<Arc<SessionEntry>> {
        // Upgraded ones are dropped by the caller, when no shard is locked.
        self.sessions.iter().filter_map(|entry| entry.value().upgrade()).collect()
    }
}

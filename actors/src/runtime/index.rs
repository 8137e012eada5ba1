//! Which sessions there are in this process: a map that no actor stands in front of.
//!
//! It holds no session: an entry is weak, and is removed with the last handle and actor of its session. So there is one
//! `Shared` for each session at a time, and a session that is put away and held by nobody costs nothing here.

use std::sync::{Arc, Weak};

use conjure_journal::SessionKey;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::session::{Forget, Shared};

/// The sessions of a runtime by their keys.
#[derive(Debug, Default)]
pub(crate) struct Index {
    sessions: DashMap<SessionKey, Weak<Shared>>,
}

impl Index {
    /// The session of this key, made where there is none. `make` is given what its last drop calls.
    pub(crate) fn get_or_insert(
        self: &Arc<Self>,
        key: &SessionKey,
        make: impl FnOnce(Forget) -> Arc<Shared>,
    ) -> Arc<Shared> {
        // Dropped after the entry: the last drop of a session comes back here.
        let shared;
        match self.sessions.entry(key.clone()) {
            Entry::Occupied(mut occupied) => match occupied.get().upgrade() {
                Some(found) => shared = found,
                None => {
                    shared = make(self.forget(key));
                    occupied.insert(Arc::downgrade(&shared));
                }
            },
            Entry::Vacant(vacant) => {
                shared = make(self.forget(key));
                vacant.insert(Arc::downgrade(&shared));
            }
        }
        shared
    }

    fn forget(self: &Arc<Self>, key: &SessionKey) -> Forget {
        let (index, key) = (Arc::downgrade(self), key.clone());
        Box::new(move || {
            if let Some(index) = index.upgrade() {
                // Another may have taken its place.
                index.sessions.remove_if(&key, |_, shared| shared.strong_count() == 0);
            }
        })
    }

    /// The session of this key, when it is live or somebody holds it.
    pub(crate) fn get(&self, key: &SessionKey) -> Option<Arc<Shared>> {
        self.sessions.get(key)?.upgrade()
    }

    pub(crate) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// All of them, as they are now.
    pub(crate) fn all(&self) -> Vec<Arc<Shared>> {
        // Upgraded ones are dropped by the caller, when no shard is locked.
        self.sessions.iter().filter_map(|entry| entry.value().upgrade()).collect()
    }
}

//! Room on a tenant's disk for contents that are about to be stored: what a host registers as an artifact, and what it takes of what a
//! session produced. It is set aside before a byte is written, so that many at once have no more than there is.
//!
//! State, in memory: what is set aside, and what is stored since the last walk began. A content counts as if it was new, also where the
//! store has it. While one is being stored, a walk may see a part of it that is set aside as well: whoever is refused then was told of a
//! moment too many, never one too few. What another process stores meanwhile is seen by the next walk.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use conjure_actors::artifacts::{SetAside, StoreRoom};
use conjure_actors::session::SessionError;
use conjure_base::TenantId;
use futures_util::future::BoxFuture;

use super::super::error::RuntimeError;
use super::meter::{DiskUsage, Meter, Meters, lock};

/// What the disk has for a file, at the least.
const BLOCK: u64 = 4096;

/// What is set aside of a tenant's disk.
#[derive(Debug, Default)]
pub(super) struct Asides(Mutex<Numbered>);

#[derive(Debug, Default)]
struct Numbered {
    last: u64,
    by_number: BTreeMap<u64, Aside>,
}

#[derive(Debug, Clone, Copy)]
struct Aside {
    usage: DiskUsage,
    until: Until,
}

/// How long room that is set aside counts beside what a walk found.
#[derive(Debug, Clone, Copy)]
enum Until {
    /// It is being stored.
    Stored,
    /// It is stored, or came to nothing: a walk that is none of the first so many has seen it.
    Walked(u64),
}

/// Room that is set aside, until this is dropped.
#[derive(Debug)]
pub(crate) struct AsideGuard {
    meter: Arc<Meter>,
    number: u64,
}

impl Meter {
    /// Sets so much aside where `judge` finds that it fits beside what was found last and what is set aside already.
    pub(super) fn set_aside(
        self: &Arc<Self>,
        more: DiskUsage,
        judge: impl FnOnce(DiskUsage) -> Result<(), RuntimeError>,
    ) -> Result<AsideGuard, RuntimeError> {
        let mut asides = lock(&self.asides.0);
        // Looked at under the lock: what this walk has seen is not counted by anybody who looks later.
        let walk = self.last_walk();
        let is_unseen = |aside: &Aside| match aside.until {
            Until::Stored => true,
            Until::Walked(begun) => walk <= begun,
        };
        asides.by_number.retain(|_, aside| is_unseen(aside));
        let sum = asides.by_number.values().fold(more, |sum, aside| sum.and(aside.usage));
        judge(sum)?;
        asides.last += 1;
        let number = asides.last;
        asides.by_number.insert(number, Aside { usage: more, until: Until::Stored });
        Ok(AsideGuard { meter: Arc::clone(self), number })
    }
}

impl Drop for AsideGuard {
    fn drop(&mut self) {
        let mut asides = lock(&self.meter.asides.0);
        let begun = self.meter.walks_begun();
        if let Some(aside) = asides.by_number.get_mut(&self.number) {
            aside.until = Until::Walked(begun);
        }
    }
}

/// The room of a session's tenant.
#[derive(Clone)]
pub(crate) struct MeteredRoom {
    meters: Meters,
    tenant: TenantId,
}

impl MeteredRoom {
    pub(crate) const fn new(meters: Meters, tenant: TenantId) -> Self {
        Self { meters, tenant }
    }
}

impl StoreRoom for MeteredRoom {
    fn set_aside(&self, bytes: u64) -> BoxFuture<'_, Result<SetAside, SessionError>> {
        Box::pin(async move {
            let more = DiskUsage { bytes: bytes.div_ceil(BLOCK).saturating_mul(BLOCK), inodes: 1 };
            match self.meters.set_aside(&self.tenant, more).await {
                Ok(Some(guard)) => Ok(SetAside::held_by(guard)),
                Ok(None) => Ok(SetAside::uncounted()),
                Err(RuntimeError::Quota(exceeded)) => Err(exceeded.into()),
                Err(RuntimeError::Unmeasured { tenant, reason }) => {
                    Err(SessionError::Unmeasured { tenant, reason })
                }
                Err(error) => {
                    tracing::warn!(tenant = %self.tenant, %error, "a tenant's folder is not measured");
                    let reason = "looking at it broke off";
                    Err(SessionError::Unmeasured { tenant: self.tenant.clone(), reason })
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_set_aside_counts_until_a_walk_has_seen_what_became_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let meter = Arc::new(Meter::default());
        let walk = || meter.walk(folder.path().to_owned());
        let some = DiskUsage { bytes: 40, inodes: 1 };
        let sum_with = |expected: u64| {
            meter.set_aside(some, |sum| {
                assert_eq!((sum.bytes, sum.inodes), (expected, expected / 40));
                Ok(())
            })
        };
        walk().await.unwrap();
        let first = sum_with(40).unwrap();
        let second = sum_with(80).unwrap();
        walk().await.unwrap();
        drop(second);
        // The walk before may have missed it; and the first is still being stored.
        drop(sum_with(120).unwrap());
        walk().await.unwrap();
        drop(sum_with(80).unwrap());
        drop(first);
        walk().await.unwrap();
        drop(sum_with(40).unwrap());
        // What does not fit is not set aside.
        let full = meter.set_aside(some, |_| Err(RuntimeError::Draining));
        assert!(matches!(full, Err(RuntimeError::Draining)));
        walk().await.unwrap();
        drop(sum_with(40).unwrap());
    }

    #[tokio::test]
    async fn a_walk_that_began_before_something_was_stored_says_nothing_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let meter = Arc::new(Meter::default());
        let turn = meter.turn.lock().await;
        let some = DiskUsage { bytes: 40, inodes: 1 };
        let stored = meter.set_aside(some, |_| Ok(())).unwrap();
        // As if one walked.
        let begun = meter.begin_walk();
        drop(stored);
        drop(turn);
        meter.walked(begun, Default::default());
        let counted = meter.set_aside(some, |sum| {
            assert_eq!(sum.bytes, 80);
            Ok(())
        });
        drop(counted.unwrap());
        meter.walk(folder.path().to_owned()).await.unwrap();
        drop(meter.set_aside(some, |sum| {
            assert_eq!(sum.bytes, 40);
            Ok(())
        }));
    }
}

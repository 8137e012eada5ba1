//! Weights of tenants: they change the order of calls, and nothing else.

use std::num::NonZeroU32;

use futures_util::future::join_all;

use super::fixture::{CaseError, CaseResult, JournalFixture, bodies, ensure_eq, new_session, notes, tenant};
use crate::event::PageLimit;
use crate::key::Epoch;
use crate::tenant_weights::TenantWeights;

pub(crate) async fn all_calls_run_in_order_for_any_weights(fixture: &dyn JournalFixture) -> CaseResult {
    const EVENTS: u64 = 30;
    let journal = fixture.open().await?;
    let weights = TenantWeights::default();
    journal.set_weights(weights.clone());
    let mut keys = Vec::new();
    for (name, weight) in [("heavy", u32::MAX), ("light", 1), ("plain", 0)] {
        let tenant = tenant(name)?;
        weights.set(&tenant, NonZeroU32::new(weight));
        keys.push(new_session(&*journal, &tenant).await?);
        keys.push(new_session(&*journal, &tenant).await?);
    }
    let mut appends = Vec::new();
    for seq in 0..EVENTS {
        appends.extend(keys.iter().map(|key| journal.append(key, seq, Epoch::NONE, notes(["x"]))));
        // Change the weights while calls wait.
        match seq {
            10 => weights.set(&keys[0].tenant, None),
            15 => weights.set_default(NonZeroU32::MAX),
            20 => journal.set_weights(TenantWeights::default()),
            _ => {}
        }
    }
    for (count, appended) in join_all(appends).await.into_iter().enumerate() {
        ensure_eq(appended?, (count / keys.len()) as u64 + 1, "the count behind an append")?;
    }
    let loads = keys.iter().map(|key| journal.read(key, 0, PageLimit::default()));
    for page in join_all(loads).await {
        ensure_eq(page?.total, EVENTS, "how many events there are")?;
    }
    for key in &keys {
        ensure_eq(bodies(&*journal, key).await?.len() as u64, EVENTS, "the events")?;
    }
    Ok::<(), CaseError>(())
}

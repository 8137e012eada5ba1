//! What part of a journal each tenant has, where calls wait for each other.
//!
//! State: in memory, only what was said of tenants. Whoever opens a journal anew gives it the same weights again
//! ([`Journal::set_weights`](crate::Journal::set_weights)).

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock};

use conjure_base::TenantId;

/// The weights of tenants, which go by them as they change. Clones are the same. A tenant of weight 3 gets three times what one of
/// weight 1 gets, where both have more to do than the journal can.
///
/// ```
/// use std::num::NonZeroU32;
/// use conjure_base::TenantId;
/// use conjure_journal::{Journal as _, MemoryJournal, Weights};
///
/// let (weights, acme) = (Weights::default(), TenantId::new("acme")?);
/// MemoryJournal::new().set_weights(weights.clone());
/// weights.set(&acme, NonZeroU32::new(3));
/// assert_eq!(weights.of(&acme).get(), 3);
/// weights.set(&acme, None);
/// assert_eq!(weights.of(&acme), weights.standard());
/// # Ok::<(), conjure_base::IdError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Weights {
    known: Arc<RwLock<Known>>,
}

#[derive(Debug)]
struct Known {
    standard: NonZeroU32,
    own: HashMap<TenantId, NonZeroU32>,
}

impl Default for Known {
    fn default() -> Self {
        Self { standard: NonZeroU32::MIN, own: HashMap::new() }
    }
}

impl Weights {
    /// No weight beyond this is told apart.
    pub const HEAVIEST: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

    /// The tenant's weight from now on; `None`: what every tenant weighs, and nothing is kept of this one.
    pub fn set(&self, tenant: &TenantId, weight: Option<NonZeroU32>) {
        self.change(|known| match weight {
            Some(weight) => drop(known.own.insert(tenant.clone(), weight.min(Self::HEAVIEST))),
            None => drop(known.own.remove(tenant)),
        });
    }

    /// What a tenant weighs from now on of which nothing is said: 1, at first.
    pub fn set_standard(&self, weight: NonZeroU32) {
        self.change(|known| known.standard = weight.min(Self::HEAVIEST));
    }

    /// What the tenant weighs.
    #[must_use]
    pub fn of(&self, tenant: &TenantId) -> NonZeroU32 {
        self.look(|known| known.own.get(tenant).copied().unwrap_or(known.standard))
    }

    /// What a tenant weighs of which nothing is said.
    #[must_use]
    pub fn standard(&self) -> NonZeroU32 {
        self.look(|known| known.standard)
    }

    /// Every change is whole, so a panic in between leaves nothing half done.
    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn look<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_weighs_what_was_said_of_it_or_of_all() {
        let (weights, acme, globex) =
            (Weights::default(), TenantId::new("acme").unwrap(), TenantId::new("globex").unwrap());
        let same = weights.clone();
        assert_eq!(weights.of(&acme).get(), 1);
        same.set(&acme, NonZeroU32::new(7));
        same.set_standard(NonZeroU32::new(2).unwrap());
        assert_eq!((weights.of(&acme).get(), weights.of(&globex).get()), (7, 2));
        weights.set(&acme, Some(NonZeroU32::MAX));
        weights.set_standard(NonZeroU32::MAX);
        assert_eq!((weights.of(&acme), weights.standard()), (Weights::HEAVIEST, Weights::HEAVIEST));
        // Nothing is kept of a tenant of which nothing is said any more.
        weights.set(&acme, None);
        weights.set(&globex, None);
        assert!(weights.look(|known| known.own.is_empty()));
    }
}

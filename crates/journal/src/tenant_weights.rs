//! The weights by which tenants share a journal when calls wait.
//! State: the weights, in memory. Set them again after opening a journal ([`Journal::set_weights`](crate::Journal::set_weights)).

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock};

use conjure_base::TenantId;

/// The weights of tenants. Clones share them, and changes apply at once. Under load, a tenant of weight 3 gets three times the share of a
/// tenant of weight 1.
///
/// ```
/// use std::num::NonZeroU32;
/// use conjure_base::TenantId;
/// use conjure_journal::{Journal as _, MemoryJournal, TenantWeights};
///
/// let (weights, acme) = (TenantWeights::default(), TenantId::new("acme")?);
/// MemoryJournal::new().set_weights(weights.clone());
/// weights.set(&acme, NonZeroU32::new(3));
/// assert_eq!(weights.weight_of(&acme).get(), 3);
/// weights.set(&acme, None);
/// assert_eq!(weights.weight_of(&acme), weights.default_weight());
/// # Ok::<(), conjure_base::IdError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct TenantWeights {
    table: Arc<RwLock<WeightTable>>,
}

#[derive(Debug)]
struct WeightTable {
    default: NonZeroU32,
    overrides: HashMap<TenantId, NonZeroU32>,
}

impl Default for WeightTable {
    fn default() -> Self {
        Self { default: NonZeroU32::MIN, overrides: HashMap::new() }
    }
}

impl TenantWeights {
    /// The largest weight; larger ones are lowered to it.
    pub const MAX: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

    /// Sets the tenant's weight; `None` removes it, so the default applies.
    pub fn set(&self, tenant: &TenantId, weight: Option<NonZeroU32>) {
        self.update(|known| match weight {
            Some(weight) => drop(known.overrides.insert(tenant.clone(), weight.min(Self::MAX))),
            None => drop(known.overrides.remove(tenant)),
        });
    }

    /// Sets the default weight, which is 1 at first.
    pub fn set_default(&self, weight: NonZeroU32) {
        self.update(|known| known.default = weight.min(Self::MAX));
    }

    /// The tenant's weight.
    #[must_use]
    pub fn weight_of(&self, tenant: &TenantId) -> NonZeroU32 {
        self.with_table(|known| known.overrides.get(tenant).copied().unwrap_or(known.default))
    }

    /// The default weight.
    #[must_use]
    pub fn default_weight(&self) -> NonZeroU32 {
        self.with_table(|known| known.default)
    }

    /// Changes the table. Every change is atomic, so a panic leaves a valid table.
    fn update(&self, change: impl FnOnce(&mut WeightTable)) {
        change(&mut self.table.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn with_table<T>(&self, read: impl FnOnce(&WeightTable) -> T) -> T {
        read(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_own_weight_or_the_default() {
        let (weights, acme, globex) =
            (TenantWeights::default(), TenantId::new("acme").unwrap(), TenantId::new("globex").unwrap());
        let same = weights.clone();
        assert_eq!(weights.weight_of(&acme).get(), 1);
        same.set(&acme, NonZeroU32::new(7));
        same.set_default(NonZeroU32::new(2).unwrap());
        assert_eq!((weights.weight_of(&acme).get(), weights.weight_of(&globex).get()), (7, 2));
        weights.set(&acme, Some(NonZeroU32::MAX));
        weights.set_default(NonZeroU32::MAX);
        assert_eq!(
            (weights.weight_of(&acme), weights.default_weight()),
            (TenantWeights::MAX, TenantWeights::MAX)
        );
        // A removed weight leaves no entry.
        weights.set(&acme, None);
        weights.set(&globex, None);
        assert!(weights.with_table(|known| known.overrides.is_empty()));
    }
}

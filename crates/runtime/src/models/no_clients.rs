//! Stands for the clients of services in a build that has none of them.

use std::collections::BTreeSet;

use conjure_base::Digest;

/// No clients.
#[derive(Clone, Default)]
pub(crate) struct ModelClients(());

impl ModelClients {
    /// There is nothing to remove.
    #[expect(clippy::unused_self, reason = "as the clients of the other builds")]
    pub(crate) const fn retain_used(&self, _: &BTreeSet<Digest>) {}
}

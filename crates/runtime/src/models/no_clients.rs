//! The type [`ModelClients`] in a build without clients of model services.

use std::collections::BTreeSet;

use conjure_base::Digest;

/// No clients.
#[derive(Clone, Default)]
pub(crate) struct ModelClients(());

impl ModelClients {
    /// Does nothing.
    #[expect(clippy::unused_self, reason = "as the clients of the other builds")]
    pub(crate) const fn retain_used(&self, _: &BTreeSet<Digest>) {}
}

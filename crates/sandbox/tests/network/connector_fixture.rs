//! Where commands run in these tests: in jails.

use std::ffi::OsString;

use conjure_egress::Egress;
use conjure_sandbox::{Connector, Jail};

/// The resources of a jail with egress.
pub(crate) struct ConnectorFixture;

impl ConnectorFixture {
    #[expect(clippy::unnecessary_wraps, reason = "other places may be missing")]
    pub(crate) const fn new() -> Option<Self> {
        Some(Self)
    }

    /// The connector of sandboxes with this egress.
    pub(crate) fn connector(&self, egress: Egress) -> Box<dyn Connector> {
        test_support::need_user_namespaces();
        let path = OsString::from("/usr/local/bin:/usr/bin:/bin");
        Box::new(Jail::new([("PATH".into(), path)]).with_egress(egress))
    }
}

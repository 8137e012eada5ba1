//! The engine of these tests: this machine's own.

use conjure_sandbox::EngineAddress;

use crate::support::engine::docker;
use crate::support::image::TestImage;

/// Where it listens; whether it answers is seen when it is asked.
#[expect(clippy::unnecessary_wraps, reason = "other engines may be missing")]
pub(crate) fn address() -> Option<EngineAddress> {
    Some(docker())
}

/// Images go with the last test that uses them.
pub(crate) const fn keep(_: &TestImage) {}

//! Frames that a guest must never send. After a violation the whole sandbox is lost, because the state of the guest
//! is unknown.

use conjure_guest::protocol::{FrameError, FrameKind, TUNNELS_MAX};

/// A frame that the guest must never send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Violation {
    #[error("the guest sent bytes that are no frame: {0}")]
    Frame(#[from] FrameError),
    #[error("the guest sent a {0:?} frame, which only a host sends, or not now")]
    Kind(FrameKind),
    #[error("the guest sent a {kind:?} frame for channel {channel}, which is not open")]
    Channel { kind: FrameKind, channel: u32 },
    #[error("the guest sent more on channel {0} than it was granted")]
    Credit(u32),
    #[error("the guest granted more on channel {0} than can be")]
    Grant(u32),
    #[error(transparent)]
    Tunnel(#[from] TunnelViolation),
}

/// A violation of the protocol of tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TunnelViolation {
    #[error("the guest opened a tunnel in a sandbox that has no proxy")]
    NotAllowed,
    #[error("the guest opened tunnel {channel}, and the next one is {next}")]
    Number { channel: u32, next: u64 },
    #[error("the guest opened more than {TUNNELS_MAX} tunnels at a time")]
    TooMany,
    #[error("the guest sent a {kind:?} frame on tunnel {channel}, whose content had ended")]
    AfterEnd { kind: FrameKind, channel: u32 },
    #[error("the guest sent on tunnel {channel} what is no content of a tunnel")]
    Content { channel: u32 },
}

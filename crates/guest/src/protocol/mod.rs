//! The frame protocol between a host and the guest in a sandbox, over any byte stream.
//!
//! Each side sends frames: a header of nine bytes (payload length, kind, channel; little endian) and a
//! payload. The host opens a *channel* for each operation; both sides may send data on it, as far as the other
//! side has granted *credit*; the guest ends it with exactly one `Done`. So a channel that nobody reads holds
//! up no other, and what either side must hold in memory is the sum of the credits it granted.
//!
//! ```text
//! host                                   guest
//! Hello {version, roots, env, …}   ─►
//!                                  ◄─   Welcome {version, pid, confinement}
//!                                       or Done#0 {why it could not confine itself}
//! Open#7 {exec, credit, timeout}   ─►
//! Data#7 (standard input), Eof#7   ─►
//!                                  ◄─   Credit#7
//!                                  ◄─   Data#7 (output)
//! Credit#7, Cancel#7               ─►
//!                                  ◄─   Done#7 {reply or error}
//! (end of stream)                  ─►   kills everything, exits
//! ```
//!
//! The guest opens channels too, for connections out of the sandbox: see `tunnel`.
//!
//! Nothing here trusts the other side: lengths are bounded before anything is allocated, and what does not
//! decode is a typed error, never a panic.

mod frame;
mod jail;
mod meeting;
mod message;
mod parcel;
mod quota;
mod rules;
#[cfg(test)]
mod tests;
mod tunnel;

pub use frame::{
    DATA_MAX, Decoder, Frame, FrameError, FrameKind, HEADER_LEN, PAYLOAD_MAX, encode_data_into, encode_into,
};
pub use jail::{
    BecomeUser, Bind, Confinement, Content, Identity, JailSpec, Links, Missing, OutputFolder, Owner, Place,
    PlaceKind, SetupFailure, SetupStep, TakeBack, WhichFiles,
};
pub use meeting::{CONNECT, NOT_MET};
pub use message::{
    Access, CaptureLimits, Captured, EntryKind, ErrorCode, ExecEnd, ExecReply, ExecRequest, FileEntry,
    FolderNumbers, GuestError, Hello, LineRange, OVER_WITHIN, Open, OutputMode, PROTOCOL_VERSION, Reply,
    Request, Root, RootsFound, SPILL_TOTAL, StdinMode, StreamId, Unlisted, Viewed, Welcome,
};
pub use parcel::{PARCEL_HEAD_LEN, PARCEL_PATH_MAX, ParcelHead, ParcelKind, ParcelMode, ParcelStart};
pub use quota::{Counted, DiskUsage, Quota, QuotaExcess};
pub use rules::{
    CommandRules, FileRule, FileRules, InForce, LimitsReached, OutputRule, ProcessLimits, RulesInForce,
    SyscallRule,
};
pub use tunnel::{FIRST_TUNNEL, ProxySpec, TUNNEL_WINDOW, TUNNELS_MAX, is_tunnel};

//! The frame protocol between a host and the guest in a sandbox, over any byte stream.
//!
//! Each side sends frames: a header of nine bytes (payload length, kind, channel; little endian) and a payload. The
//! host opens a *channel* for each operation. Both sides may send data on it, within the *credit* that the other side
//! has granted. The guest ends the channel with exactly one `Done`. So a channel whose receiver does not read does
//! not block other channels. Each side must hold at most the sum of the credits that it granted.
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
//! The guest also opens channels, for connections out of the sandbox: see `tunnel`.
//!
//! Neither side trusts the other. Lengths are checked before memory is allocated, and malformed input is a typed
//! error, never a panic.

mod content_archive;
mod error;
mod exec;
mod files;
mod frame;
mod handshake;
mod jail;
mod message;
mod quota;
mod rules;
#[cfg(test)]
mod tests;
mod tunnel;

pub use content_archive::{
    ARCHIVE_HEADER_LEN, ARCHIVE_PATH_MAX, ArchiveHeader, ArchiveHeaderStart, ArchiveKind, FileMode,
};
pub use error::{ErrorCode, GuestError};
pub use exec::{
    CaptureLimits, CapturedOutput, ExecEnd, ExecReply, ExecRequest, OutputMode, ProgramLifetime, StdinMode,
};
pub use files::{Access, EntryKind, FileEntry, LineRange, UnlistedEntry, ViewReply};
pub use frame::{
    DATA_MAX, Decoder, Frame, FrameError, FrameKind, HEADER_LEN, PAYLOAD_MAX, StreamId, encode_data_into,
    encode_into,
};
pub use handshake::{
    CONNECT_ARG, CONNECT_FAILED, DirId, Hello, OpenedRoots, PROTOCOL_VERSION, Root, SPILL_TOTAL, Welcome,
};
pub use jail::{
    BecomeUser, Bind, BindContent, ChownRequest, Confinement, FileSelection, Identity, IfMissing, JailSpec,
    MountEntry, MountKind, OutputMount, OwnerMapping, SetupError, SetupStep, SymlinkPolicy,
};
pub use message::{END_TIMEOUT, Open, Reply, Request};
pub use quota::{DiskUsage, Quota, QuotaBasis, QuotaExcess};
pub use rules::{
    CommandRules, EnforcedRules, FileRule, FileRules, ProcessLimits, ReachedLimits, RuleStatus, SpillAccess,
    SyscallRule,
};
pub use tunnel::{FIRST_TUNNEL, ProxySpec, TUNNEL_WINDOW, TUNNELS_MAX, is_tunnel};

//! The messages between the guest and a shim: launch requests for an idle shim, and reports from shims.
//!
//! Each message is one packet. No state is kept. When the channel is closed or does not accept a request at once,
//! the guest forks a new shim. A closed channel tells a shim that the guest is gone.

use std::borrow::Cow;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, send, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};

use conjure_guest::protocol::{ExecRequest, GuestError, ProcessLimits};

/// The maximum length of a request to an idle shim. A longer request gets a new shim, which inherits it by the
/// fork.
const REQUEST_MAX: usize = 32 * 1024;

/// The maximum length of an error message in a report. The middle of a longer one is cut out.
const ERROR_MAX: usize = 8 * 1024;

/// The number of a program's descriptors: standard input, output and error.
const STANDARD: usize = 3;

/// A program that a shim is to run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LaunchRequest<'a> {
    pub(super) request: Cow<'a, ExecRequest>,
    /// The program's resource limits.
    pub(super) limits: ProcessLimits,
}

/// A message from a shim to the guest.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ShimReport {
    /// The program exited.
    Exited(ShimExit),
    /// The program could not be started.
    Failed(GuestError),
}

/// The exit of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShimExit {
    /// Its wait status.
    pub(super) status: i32,
    /// Whether it left processes running.
    pub(super) leftovers: Leftovers,
}

/// Whether a program left processes running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leftovers {
    None = 0,
    Some = 1,
}

impl ShimReport {
    const ENDED: u8 = b'e';
    const FAILED: u8 = b'f';

    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Exited(ShimExit { status, leftovers }) => {
                [&[Self::ENDED, *leftovers as u8], status.to_le_bytes().as_slice()].concat()
            }
            Self::Failed(error) => {
                let shortened =
                    GuestError { code: error.code, message: shorten(&error.message).into_owned() };
                let mut bytes = vec![Self::FAILED];
                bytes.extend(serde_json::to_vec(&shortened).unwrap_or_default());
                bytes
            }
        }
    }

    /// Decodes a report. `None` when it is malformed.
    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        match message.split_first()? {
            (&Self::ENDED, rest) => {
                let (leftovers, rest) = rest.split_first()?;
                let leftovers =
                    if *leftovers == Leftovers::None as u8 { Leftovers::None } else { Leftovers::Some };
                let (status, _) = rest.split_first_chunk::<4>()?;
                Some(Self::Exited(ShimExit { status: i32::from_le_bytes(*status), leftovers }))
            }
            (&Self::FAILED, rest) => serde_json::from_slice(rest).ok().map(Self::Failed),
            _ => None,
        }
    }

    /// Sends the report. When that fails, the guest sees the end of the channel.
    pub(super) fn send(&self, channel: &OwnedFd) -> Result<(), Errno> {
        let message = self.encode();
        loop {
            match send(channel, &message, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return sent.map(drop),
            }
        }
    }
}

/// Cuts the middle out of a long message, such as one with a very long path.
fn shorten(message: &str) -> Cow<'_, str> {
    if message.len() <= ERROR_MAX {
        return Cow::Borrowed(message);
    }
    let head = message.get(..message.floor_char_boundary(ERROR_MAX / 2)).unwrap_or_default();
    let tail = message.get(message.ceil_char_boundary(message.len() - ERROR_MAX / 2)..).unwrap_or_default();
    Cow::Owned(format!("{head}…{tail}"))
}

/// Creates a channel: the guest's non-blocking end, and the shim's end.
pub(super) fn channel() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (own, shim_end) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&own, true)?;
    Ok((own, shim_end))
}

/// Sends an encoded request to an idle shim, with the program's descriptors.
pub(super) fn send_request(
    channel: &OwnedFd,
    message: &[u8],
    descriptors: [BorrowedFd<'_>; STANDARD],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STANDARD))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::NOBUFS);
    }
    sendmsg(channel, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

impl LaunchRequest<'_> {
    /// Encodes the request. `None` when it is too long.
    pub(super) fn message(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok().filter(|message| message.len() <= REQUEST_MAX)
    }

    /// Waits for a request. The program's descriptors become descriptors 0, 1 and 2 of this process, which must be
    /// free. `None` when the guest is gone or the message is malformed.
    pub(super) fn receive(
        channel: &OwnedFd,
        message: &mut [u8],
    ) -> Option<(LaunchRequest<'static>, [OwnedFd; STANDARD])> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STANDARD))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let length = loop {
            let mut pieces = [IoSliceMut::new(message)];
            match recvmsg(channel, &mut pieces, &mut ancillary, RecvFlags::empty()) {
                Ok(received) => break received.bytes,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        };
        let mut descriptors = Vec::with_capacity(STANDARD);
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        // The kernel assigns the lowest free numbers.
        let are_standard = (0..).zip(&descriptors).all(|(number, one)| one.as_fd().as_raw_fd() == number);
        let descriptors = <[OwnedFd; STANDARD]>::try_from(descriptors).ok().filter(|_| are_standard)?;
        let request = serde_json::from_slice(message.get(..length)?).ok()?;
        Some((request, descriptors))
    }
}

/// Allocates a buffer for one request.
pub(super) fn request_buffer() -> Vec<u8> {
    vec![0; REQUEST_MAX]
}

#[cfg(test)]
mod tests {
    use conjure_guest::protocol::ErrorCode;

    use super::*;

    #[test]
    fn reports_round_trip() {
        let error = crate::error::error(ErrorCode::NotFound, "ü");
        for report in [
            ShimReport::Exited(ShimExit { status: -7, leftovers: Leftovers::Some }),
            ShimReport::Exited(ShimExit { status: 0x100, leftovers: Leftovers::None }),
            ShimReport::Failed(error),
        ] {
            let message = report.encode();
            assert_eq!(ShimReport::decode(&message), Some(report));
            assert_eq!(ShimReport::decode(&message[..3]), None);
        }
        let long =
            crate::error::error(ErrorCode::NotFound, format!("cannot run `{}`: why", "ü".repeat(200_000)));
        let Some(ShimReport::Failed(shortened)) = ShimReport::decode(&ShimReport::Failed(long).encode())
        else {
            panic!("none")
        };
        assert!(shortened.message.len() < ERROR_MAX + 16, "{}", shortened.message.len());
        assert!(shortened.message.starts_with("cannot run `ü") && shortened.message.ends_with("ü`: why"));
        assert_eq!(ShimReport::decode(b""), None);
        assert_eq!(ShimReport::decode(b"what?"), None);
    }
}

//! The line between the guest and a shim: what an idle shim is told to run, and what shims report.
//!
//! Each message is whole. Nothing is kept: a line that ended, or does not take an order at once, is given up by the guest,
//! which forks another shim; one that ended tells a shim that the guest is gone.

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

/// The longest order that is sent to an idle shim. Longer ones get a shim of their own, which has them by its fork.
const ORDER_MAX: usize = 32 * 1024;

/// The longest message of an error that is told whole.
const ERROR_MAX: usize = 8 * 1024;

/// A program's descriptors: standard input, output and error.
const STANDARD: usize = 3;

/// What a shim is to run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order<'a> {
    pub(super) request: Cow<'a, ExecRequest>,
    /// What the program may use.
    pub(super) limits: ProcessLimits,
}

/// What a shim tells the guest.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The program ended.
    Ended(Ended),
    /// The program could not be started.
    Failed(GuestError),
}

/// A program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// Its wait status.
    pub(super) status: i32,
    /// What it started and is still there.
    pub(super) leaves: Leaves,
}

/// Whether a program left something running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    Nothing = 0,
    Something = 1,
}

impl Report {
    const ENDED: u8 = b'e';
    const FAILED: u8 = b'f';

    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ended(Ended { status, leaves }) => {
                [&[Self::ENDED, *leaves as u8], status.to_le_bytes().as_slice()].concat()
            }
            Self::Failed(error) => {
                let told = GuestError { code: error.code, message: cut(&error.message).into_owned() };
                let mut bytes = vec![Self::FAILED];
                bytes.extend(serde_json::to_vec(&told).unwrap_or_default());
                bytes
            }
        }
    }

    /// The report that is this message; `None` for what no shim says.
    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        match message.split_first()? {
            (&Self::ENDED, rest) => {
                let (leaves, rest) = rest.split_first()?;
                let leaves =
                    if *leaves == Leaves::Nothing as u8 { Leaves::Nothing } else { Leaves::Something };
                let (status, _) = rest.split_first_chunk::<4>()?;
                Some(Self::Ended(Ended { status: i32::from_le_bytes(*status), leaves }))
            }
            (&Self::FAILED, rest) => serde_json::from_slice(rest).ok().map(Self::Failed),
            _ => None,
        }
    }

    /// Sends it. The guest learns of one that cannot be sent by the end of the line.
    pub(super) fn send(&self, line: &OwnedFd) -> Result<(), Errno> {
        let message = self.encode();
        loop {
            match send(line, &message, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return sent.map(drop),
            }
        }
    }
}

/// What an error says, without the middle where it is as long as a path of somebody's making.
fn cut(message: &str) -> Cow<'_, str> {
    if message.len() <= ERROR_MAX {
        return Cow::Borrowed(message);
    }
    let head = message.get(..message.floor_char_boundary(ERROR_MAX / 2)).unwrap_or_default();
    let tail = message.get(message.ceil_char_boundary(message.len() - ERROR_MAX / 2)..).unwrap_or_default();
    Cow::Owned(format!("{head}…{tail}"))
}

/// The guest's end of a line, which never blocks, and the shim's.
pub(super) fn line() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (own, of_shim) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&own, true)?;
    Ok((own, of_shim))
}

/// Sends the message of an order to an idle shim, with the program's descriptors.
pub(super) fn send_order(
    line: &OwnedFd,
    message: &[u8],
    descriptors: [BorrowedFd<'_>; STANDARD],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STANDARD))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !beside.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::NOBUFS);
    }
    sendmsg(line, &[IoSlice::new(message)], &mut beside, SendFlags::NOSIGNAL).map(drop)
}

impl Order<'_> {
    /// The message that it is sent in; `None` when it is too long.
    pub(super) fn message(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok().filter(|message| message.len() <= ORDER_MAX)
    }

    /// Waits for an order. The program's descriptors are then this process's 0, 1 and 2, which must be free. `None` when the
    /// guest is gone, or says what it never says.
    pub(super) fn receive(
        line: &OwnedFd,
        message: &mut [u8],
    ) -> Option<(Order<'static>, [OwnedFd; STANDARD])> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STANDARD))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let length = loop {
            let mut pieces = [IoSliceMut::new(message)];
            match recvmsg(line, &mut pieces, &mut beside, RecvFlags::empty()) {
                Ok(received) => break received.bytes,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        };
        let mut descriptors = Vec::with_capacity(STANDARD);
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        // The kernel gives the lowest numbers that are free.
        let are_standard = (0..).zip(&descriptors).all(|(number, one)| one.as_fd().as_raw_fd() == number);
        let descriptors = <[OwnedFd; STANDARD]>::try_from(descriptors).ok().filter(|_| are_standard)?;
        let order = serde_json::from_slice(message.get(..length)?).ok()?;
        Some((order, descriptors))
    }
}

/// Room for an order.
pub(super) fn room() -> Vec<u8> {
    vec![0; ORDER_MAX]
}

#[cfg(test)]
mod tests {
    use conjure_guest::protocol::ErrorCode;

    use super::*;

    #[test]
    fn reports_come_back_as_they_were() {
        let error = crate::error::error(ErrorCode::NotFound, "ü");
        for report in [
            Report::Ended(Ended { status: -7, leaves: Leaves::Something }),
            Report::Ended(Ended { status: 0x100, leaves: Leaves::Nothing }),
            Report::Failed(error),
        ] {
            let message = report.encode();
            assert_eq!(Report::decode(&message), Some(report));
            assert_eq!(Report::decode(&message[..3]), None);
        }
        let long =
            crate::error::error(ErrorCode::NotFound, format!("cannot run `{}`: why", "ü".repeat(200_000)));
        let Some(Report::Failed(told)) = Report::decode(&Report::Failed(long).encode()) else {
            panic!("none")
        };
        assert!(told.message.len() < ERROR_MAX + 16, "{}", told.message.len());
        assert!(told.message.starts_with("cannot run `ü") && told.message.ends_with("ü`: why"));
        assert_eq!(Report::decode(b""), None);
        assert_eq!(Report::decode(b"what?"), None);
    }
}

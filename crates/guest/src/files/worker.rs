//! File operations: the worker's side, in a process of its own that may block.
//!
//! A worker's descriptors are: 0, content from the guest; 1, content for it; 2, standard error; 3, where to
//! reply; 4, the folder that has a quota, if one has; 5, the folder of the shelves, if there is one; from 6 on, the roots. It exits with 0 once its reply is whole.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal};

use conjure_guest::protocol::{GuestError, Reply, Request};

use crate::quota::{Allowance, Room};
use crate::{error, sys};

use super::provide::{self, Label};
use super::roots::{Reach, Roots};
use super::{change, list, read, view, walk};

/// Bytes that are read or written at once.
pub(super) const PIECE: usize = 64 * 1024;

/// An operation to be done by a worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work<'a> {
    pub(crate) request: &'a Request,
    pub(crate) roots: &'a Roots,
    /// How much may be written beneath the root that has a quota.
    pub(crate) room: Option<&'a Room<'a>>,
    pub(crate) guest: Pid,
}

/// The worker's ends of its pipes.
#[derive(Debug)]
struct Pipes {
    input: File,
    output: File,
}

impl Work<'_> {
    /// The life of a worker.
    pub(crate) fn run(&self, descriptors: Vec<OwnedFd>) -> u8 {
        if rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).is_err()
            || rustix::process::getppid() != Some(self.guest)
        {
            return 1;
        }
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next();
        let (Some(input), Some(output), Some(_stderr), Some(reply_to), Some(limited), Some(shelves)) =
            (next(), next(), next(), next(), next(), next())
        else {
            return 1;
        };
        let allowance = self.room.map(|room| Allowance::new(room, limited, self.guest));
        let reach = self.roots.reach(descriptors, allowance);
        let result = self.work(&reach, &shelves, Pipes { input: input.into(), output: output.into() });
        match File::from(reply_to).write_all(&error::encode(&result)) {
            Ok(()) => 0,
            Err(_) => 1,
        }
    }

    fn work(&self, reach: &Reach<'_>, shelves: &OwnedFd, mut pipes: Pipes) -> Result<Reply, GuestError> {
        let changes = matches!(
            self.request,
            Request::Write { .. }
                | Request::Replace { .. }
                | Request::Folder { .. }
                | Request::Provide { .. }
                | Request::Withdraw { .. }
        );
        if !changes {
            // These leave nothing behind wherever they are ended.
            sys::allow_termination();
        }
        match self.request {
            Request::View { path, range, max_bytes } => {
                view::view(reach, path, *range, *max_bytes, &mut pipes.output)
            }
            Request::Write { path, mode } => change::write(reach, path, *mode, &mut pipes.input),
            Request::Provide { shelf, name, kind } => {
                provide::provide(shelves, &Label { shelf, name, kind: *kind }, &mut pipes.input)
            }
            Request::Withdraw { shelf, name } => provide::withdraw(shelves, shelf, name),
            Request::Replace { path, old, new } => change::replace(reach, path, old, new),
            Request::List { path, depth, max_entries, hidden } => {
                let limits = list::Limits { depth: *depth, entries: *max_entries, hidden: *hidden };
                list::list(reach, path, limits)
            }
            Request::Walk { path, after, max_entries } => {
                walk::walk(reach, path, after.as_deref(), *max_entries)
            }
            Request::Folder { path, mode } => change::make_folder(reach, path, *mode),
            Request::Read { path, offset, length } => {
                read::read(reach, path, *offset, *length, &mut pipes.output)
            }
            Request::Exec(_) | Request::Pause | Request::Resume => {
                Err(error::io("a file worker is concerned with files alone"))
            }
        }
    }
}

/// What the system said while the bytes of `path` were moved.
pub(super) fn failed(error: &io::Error, path: &str, doing: &str) -> GuestError {
    match rustix::io::Errno::from_io_error(error) {
        Some(errno) => error::of_file(errno, path, doing),
        None => error::io(format!("cannot {doing} `{path}`: {error}")),
    }
}

/// Passes bytes on, at most `limit`, in pieces. How many there were.
pub(super) fn pass(
    from: &mut impl Read,
    to: &mut impl Write,
    limit: u64,
    path: &str,
    doing: &str,
) -> Result<u64, GuestError> {
    let mut piece = vec![0; PIECE];
    let mut passed = 0;
    while passed < limit {
        let room = usize::try_from(limit - passed).unwrap_or(PIECE).min(PIECE);
        let Some(buffer) = piece.get_mut(..room) else { break };
        let length = match from.read(buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(&error, path, doing)),
        };
        to.write_all(buffer.get(..length).unwrap_or_default())
            .map_err(|error| failed(&error, path, doing))?;
        passed += length as u64;
    }
    Ok(passed)
}

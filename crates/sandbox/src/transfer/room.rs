//! How much may lie on the shelves of a sandbox that are filled through its guest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{SandboxError, SandboxErrorKind};
use crate::provision::Shelf;

/// What is left of it, in bytes, and what each thing takes that lies there.
#[derive(Debug)]
pub(super) struct Room {
    left: AtomicU64,
    kept: Mutex<BTreeMap<(Shelf, String), u64>>,
}

/// A part of it. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    room: &'a Room,
    bytes: u64,
}

impl Room {
    pub(super) const fn new(bytes: u64) -> Self {
        Self { left: AtomicU64::new(bytes), kept: Mutex::new(BTreeMap::new()) }
    }

    /// Takes a part for what is called `name`.
    pub(super) fn take(&self, bytes: u64, name: &str) -> Result<Taken<'_>, SandboxError> {
        let taken =
            self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(bytes));
        taken.map(|_| Taken { room: self, bytes }).map_err(|left| {
            let message = format!(
                "`{name}` cannot be given to the sandbox: it takes {bytes} bytes, and of the room for skills and artifacts, \
                 which is as large as the workspace's limit of the disk, {left} are left"
            );
            SandboxError::new(SandboxErrorKind::NoSpace, message)
        })
    }
}

impl Room {
    /// What lay there under this name does not any more.
    pub(super) fn leave(&self, shelf: Shelf, name: &str) {
        let bytes =
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(&(shelf, name.to_owned()));
        self.left.fetch_add(bytes.unwrap_or_default(), Ordering::AcqRel);
    }
}

impl Taken<'_> {
    /// It is used by what has this name, until that leaves.
    pub(super) fn keep(mut self, shelf: Shelf, name: String) {
        let bytes = std::mem::take(&mut self.bytes);
        self.room.kept.lock().unwrap_or_else(PoisonError::into_inner).insert((shelf, name), bytes);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.room.left.fetch_add(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_given_back() {
        let room = Room::new(10);
        drop(room.take(10, "a").unwrap());
        room.take(6, "b").unwrap().keep(Shelf::Skills, "b".to_owned());
        let refused = room.take(5, "c").unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::NoSpace);
        assert!(
            refused.to_string().contains("`c`") && refused.to_string().contains("4 are left"),
            "{refused}"
        );
        assert!(room.take(4, "d").is_ok());
        room.leave(Shelf::Artifacts, "b");
        assert!(room.take(5, "e").is_err());
        room.leave(Shelf::Skills, "b");
        room.leave(Shelf::Skills, "b");
        assert!(room.take(10, "f").is_ok() && room.take(11, "g").is_err());
    }
}

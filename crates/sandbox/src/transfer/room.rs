//! How much may lie on the shelves of a sandbox that are filled through its guest.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{SandboxError, SandboxErrorKind};

/// What is left of it, in bytes.
#[derive(Debug)]
pub(super) struct Room(AtomicU64);

/// A part of it. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    room: &'a Room,
    bytes: u64,
}

impl Room {
    pub(super) const fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    /// Takes a part for what is called `name`.
    pub(super) fn take(&self, bytes: u64, name: &str) -> Result<Taken<'_>, SandboxError> {
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(bytes));
        taken.map(|_| Taken { room: self, bytes }).map_err(|left| {
            let message = format!(
                "`{name}` cannot be given to the sandbox: it takes {bytes} bytes, and of the room for skills and artifacts, \
                 which is as large as the workspace's limit of the disk, {left} are left"
            );
            SandboxError::new(SandboxErrorKind::NoSpace, message)
        })
    }
}

impl Taken<'_> {
    /// It is used for good.
    pub(super) fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.room.0.fetch_add(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_given_back() {
        let room = Room::new(10);
        drop(room.take(10, "a").unwrap());
        room.take(6, "b").unwrap().keep();
        let refused = room.take(5, "c").unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::NoSpace);
        assert!(
            refused.to_string().contains("`c`") && refused.to_string().contains("4 are left"),
            "{refused}"
        );
        assert!(room.take(4, "d").is_ok());
    }
}

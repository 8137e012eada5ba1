//! Which processes have a data folder: who of them is dead, so that nobody waits for the end of its leases.
//!
//! ```text
//! <data>/hosts/NAME        locked while the process lives; the name is the digest of its owner's name
//! <data>/hosts/NAME.dead   it was found dead, not long ago, and what it left is swept
//! <data>/hosts/begin.turn  locked by a process that begins
//! ```
//!
//! State: these files. A process that has stopped everything in order removes its own; what a crash leaves, or an end before all was
//! stopped, the kernel has unlocked. A name that is not there says nothing.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_base::{Clock as _, Digest, SystemClock};
use conjure_journal::Owner;

/// For so long it is remembered that a process is dead: longer than its leases last.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// Locked by the one that begins.
const TURN: &str = "begin.turn";

/// This process, among those that have the data folder: it lives until this is dropped, and is dead then, unless it left.
#[derive(Debug)]
pub(crate) struct Presence {
    folder: PathBuf,
    own: PathBuf,
    /// Locked.
    _lock: File,
}

/// Processes that are found to be dead, and that nobody has swept for yet.
#[derive(Debug, Default)]
pub(crate) struct Dead {
    marks: Vec<PathBuf>,
}

impl Dead {
    /// How many they are.
    pub(crate) const fn count(&self) -> usize {
        self.marks.len()
    }
}

impl Presence {
    /// Shows that this process lives, and says who is found to be dead. Once what they left is swept, they are to be
    /// [buried](Self::bury): until then whoever begins finds them, too. Blocks, for as long as others that begin at the same time
    /// do this.
    pub(crate) fn announce(data: &Path, owner: &Owner) -> io::Result<(Self, Dead)> {
        let folder = data.join("hosts");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        // Until it is returned: nobody looks around who could take what is being made for that of a dead one.
        let turn = open(&folder.join(TURN))?;
        turn.lock()?;
        let name = name_of(owner);
        let (draft, own) = (folder.join(format!("{name}.new")), folder.join(&name));
        // It has its name when it is locked: who asks for one alone does not wait for a turn.
        let lock = open(&draft)?;
        lock.try_lock()?;
        fs::rename(&draft, &own)?;
        let presence = Self { folder, own, _lock: lock };
        let dead = presence.look_around()?;
        Ok((presence, dead))
    }

    /// Who is found to be dead now, as [`Presence::announce`] says. Blocks, as that does.
    pub(crate) fn look(&self) -> io::Result<Dead> {
        let turn = open(&self.folder.join(TURN))?;
        turn.lock()?;
        self.look_around()
    }

    /// Nothing is left of these: nobody sweeps for them any more. Blocks, as [`Presence::announce`] does.
    pub(crate) fn bury(&self, dead: &Dead) -> io::Result<()> {
        let turn = open(&self.folder.join(TURN))?;
        turn.lock()?;
        for path in &dead.marks {
            // Somebody else was faster, or one began anew under its name.
            let Ok(file) = File::open(path) else { continue };
            if file.try_lock_shared().is_err() {
                continue;
            }
            // Its date says since when it is known.
            fs::write(path.with_extension("dead"), b"")?;
            fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Everything was stopped: nothing is left of this process. Blocks for a moment.
    pub(crate) fn leave(&self) {
        remove(&self.own);
    }

    /// Whether this owner is a process that is known to be dead. Those who ask at the same time are not in each other's way.
    pub(crate) fn is_dead(&self, owner: &Owner) -> bool {
        let path = self.folder.join(name_of(owner));
        match File::open(&path) {
            Ok(file) => file.try_lock_shared().is_ok(),
            Err(_) => path.with_extension("dead").exists(),
        }
    }

    /// Finds those that are dead, and forgets those that were long ago.
    fn look_around(&self) -> io::Result<Dead> {
        let mut dead = Dead::default();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("dead") if is_old(&path) => remove(&path),
                Some("dead" | "turn") => {}
                _ if path == self.own => {}
                extension => {
                    let Ok(file) = File::open(&path) else { continue };
                    if file.try_lock_shared().is_err() {
                        continue;
                    }
                    if extension.is_some() {
                        // Somebody died over it.
                        remove(&path);
                        continue;
                    }
                    dead.marks.push(path);
                }
            }
        }
        Ok(dead)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn name_of(owner: &Owner) -> String {
    Digest::of(owner.as_str().as_bytes()).to_hex()
}

fn is_old(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|found| found.modified()).ok();
    let age = modified.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
    let now = Duration::from_millis(SystemClock.timestamp().millis());
    age.is_some_and(|date| now.saturating_sub(date) > REMEMBERED)
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::debug!(path = %path.display(), %error, "a file that says who lives is left");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lives_is_not_dead_and_who_ended_in_order_is_unknown() {
        let data = tempfile::tempdir().unwrap();
        let [one, other, nobody] = ["one", "other", "nobody"].map(|name| Owner::new(name).unwrap());
        let (first, dead) = Presence::announce(data.path(), &one).unwrap();
        let (second, found) = Presence::announce(data.path(), &other).unwrap();
        assert_eq!((dead.count(), found.count()), (0, 0));
        assert!(!second.is_dead(&one) && !first.is_dead(&other) && !first.is_dead(&nobody));
        second.leave();
        drop(second);
        assert!(!first.is_dead(&other));
        let (second, _) = Presence::announce(data.path(), &other).unwrap();
        assert!(!first.is_dead(&other));
        // It ends before everything was stopped.
        drop(second);
        assert!(first.is_dead(&other));
        let [third, fourth] = ["third", "fourth"].map(|name| Owner::new(name).unwrap());
        let (third, found) = Presence::announce(data.path(), &third).unwrap();
        assert_eq!(found.count(), 1);
        assert!(third.is_dead(&other) && !third.is_dead(&one));
        // Until somebody has swept for it, whoever begins finds it.
        let (fourth, again) = Presence::announce(data.path(), &fourth).unwrap();
        assert_eq!(again.count(), 1);
        third.bury(&found).unwrap();
        fourth.bury(&again).unwrap();
        assert!(third.is_dead(&other));
        // One that begins anew under the same name lives, and is not buried for the one before.
        let (_again, found) = Presence::announce(data.path(), &other).unwrap();
        assert_eq!(found.count(), 0);
        third.bury(&again).unwrap();
        assert!(!third.is_dead(&other));
        let (_, found) = Presence::announce(data.path(), &Owner::new("fifth").unwrap()).unwrap();
        assert_eq!(found.count(), 0);
    }

    #[test]
    fn processes_that_begin_at_once_take_nothing_from_each_other() {
        let data = tempfile::tempdir().unwrap();
        let begin = |place: u32| {
            for round in 0..50 {
                let owner = Owner::new(format!("host-{place}-{round}")).unwrap();
                Presence::announce(data.path(), &owner).unwrap().0.leave();
            }
        };
        std::thread::scope(|scope| {
            for place in 0..6 {
                scope.spawn(move || begin(place));
            }
        });
    }
}

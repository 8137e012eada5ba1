//! Making room: what crashes left, and what nobody uses any more.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use conjure_base::{Digest, Timestamp};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::folders::{FROZEN, Folders, digest_of};
use crate::frozen::{digest_part, last_used as last_used_frozen};
use crate::store::{Inner, Store, Variant, last_read};

/// What [`Store::sweep`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Temporary files of writers that are gone, removed.
    pub removed: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Temporary files of writers that live, left alone.
    pub alive: u64,
}

/// What [`Store::collect`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Contents removed.
    pub removed: u64,
    /// Their bytes. What a sandbox still has links to is freed when it goes.
    pub bytes: u64,
    /// Contents kept.
    pub kept: u64,
}

/// What a store holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Contents, those that are there in both variants, or as frozen links besides, counted each time.
    pub contents: u64,
    /// Their bytes, also of files that were only linked.
    pub bytes: u64,
    /// Temporary files.
    pub temporary: u64,
}

/// Where contents lie.
#[derive(Debug, Clone, Copy)]
enum Area {
    Of(Variant),
    Frozen,
}

impl Area {
    const ALL: [Self; 3] = [Self::Of(Variant::Plain), Self::Of(Variant::Executable), Self::Frozen];

    const fn open(self, folders: &Folders) -> &OwnedFd {
        match self {
            Self::Of(variant) => folders.of(variant),
            Self::Frozen => folders.frozen(),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Of(variant) => variant.folder(),
            Self::Frozen => FROZEN,
        }
    }

    /// As what it is asked for.
    const fn variant(self) -> Variant {
        match self {
            Self::Of(variant) => variant,
            Self::Frozen => Variant::Plain,
        }
    }

    /// What of a name says the digest.
    fn part_of(self, name: &str) -> &str {
        match self {
            Self::Of(_) => name,
            Self::Frozen => digest_part(name),
        }
    }

    /// When a content was last used.
    fn used(self, stat: &Stat) -> Timestamp {
        match self {
            Self::Of(_) => last_read(stat),
            Self::Frozen => last_used_frozen(stat),
        }
    }

    /// What removing it frees, if no sandbox has it.
    fn freed(self, stat: &Stat) -> u64 {
        match self {
            Self::Frozen if stat.st_nlink > 1 => 0,
            _ => bytes(stat),
        }
    }
}

impl Store {
    /// Removes the temporary files of writers that are gone. Writers that live hold a lock on theirs.
    ///
    /// # Errors
    /// What the system says.
    pub fn sweep(&self) -> Result<Swept, StoreError> {
        let folders = &self.inner().folders;
        let folder = folders.temporary();
        let mut swept = Swept::default();
        for (name, stat) in entries(folder, "temporary", self.inner())? {
            let failed = |errno| StoreError::of(errno, "sweep", &folders.temporary_path(&name));
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = match rustix::fs::openat(folder, name.as_str(), flags, Mode::empty()) {
                    Err(Errno::NOENT) => continue,
                    other => other.map_err(failed)?,
                };
                match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => {}
                    Err(Errno::WOULDBLOCK) => {
                        swept.alive += 1;
                        continue;
                    }
                    Err(errno) => return Err(failed(errno)),
                }
                // Removed while the lock is held: a writer that comes too late for its lock takes another name.
                if remove(folder, &name).map_err(failed)? {
                    swept.removed += 1;
                    swept.bytes += bytes(&stat);
                }
            }
        }
        Ok(swept)
    }

    /// Removes the contents for which `is_live` says no and that were not inserted, linked or asked for since `unused_since`.
    ///
    /// The time guards what is being put to use just now: whoever inserts a content that is there gets its digest without
    /// telling the caller of this, and whoever asks for one may take some time to open or link it. It should lie back longer than
    /// anybody takes from that to the end of a use: an hour is plenty. Of a content that is asked for more than once a minute
    /// only the first time is noted.
    ///
    /// # Errors
    /// What the system says; `ReadOnly` where nothing can be removed.
    pub fn collect(
        &self,
        mut is_live: impl FnMut(&Digest) -> bool,
        unused_since: Timestamp,
    ) -> Result<Collected, StoreError> {
        let mut collected = Collected::default();
        for area in Area::ALL {
            for shard in self.inner().shards(area)? {
                // Held shard by shard, so that others get their turn.
                let _lock = self.inner().folders.lock(FlockOperation::LockExclusive)?;
                self.inner().each(area, &shard, |folder, digest, name, stat| {
                    let is_old = area.used(stat).millis() < unused_since.millis();
                    if is_old && !is_live(&digest) && remove(folder, name)? {
                        collected.removed += 1;
                        collected.bytes += area.freed(stat);
                    } else {
                        collected.kept += 1;
                    }
                    Ok(())
                })?;
            }
        }
        Ok(collected)
    }

    /// The digests of the contents that somebody has a link to: removing those frees nothing yet.
    ///
    /// # Errors
    /// What the system says.
    pub fn linked(&self) -> Result<HashSet<Digest>, StoreError> {
        let mut linked = HashSet::new();
        for area in Area::ALL {
            for shard in self.inner().shards(area)? {
                self.inner().each(area, &shard, |_, digest, _, stat| {
                    if stat.st_nlink > 1 {
                        linked.insert(digest);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(linked)
    }

    /// Counts what is there.
    ///
    /// # Errors
    /// What the system says.
    pub fn usage(&self) -> Result<Usage, StoreError> {
        let inner = self.inner();
        let temporary = entries(inner.folders.temporary(), "temporary", inner)?.len() as u64;
        let mut usage = Usage { temporary, ..Usage::default() };
        for area in Area::ALL {
            for shard in inner.shards(area)? {
                inner.each(area, &shard, |_, _, _, stat| {
                    usage.contents += 1;
                    usage.bytes += bytes(stat);
                    Ok(())
                })?;
            }
        }
        Ok(usage)
    }

    /// The digests of all contents, in both variants, in no order.
    ///
    /// # Errors
    /// What the system says.
    pub fn digests(&self) -> Result<Vec<(Digest, Variant)>, StoreError> {
        let mut digests = Vec::new();
        for area in Area::ALL {
            for shard in self.inner().shards(area)? {
                self.inner().each(area, &shard, |_, digest, _, _| {
                    digests.push((digest, area.variant()));
                    Ok(())
                })?;
            }
        }
        Ok(digests)
    }
}

impl Inner {
    fn shards(&self, area: Area) -> Result<Vec<String>, StoreError> {
        let found = entries(area.open(&self.folders), area.name(), self)?;
        Ok(found.into_iter().map(|(name, _)| name).filter(|name| name.len() == 2).collect())
    }

    /// Does something with each content of a shard.
    fn each(
        &self,
        area: Area,
        shard: &str,
        mut act: impl FnMut(&OwnedFd, Digest, &str, &Stat) -> Result<(), Errno>,
    ) -> Result<(), StoreError> {
        let path = format!("{}/{shard}", area.name());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(area.open(&self.folders), shard, flags, Mode::empty())
            .map_err(|errno| StoreError::of(errno, "list", &self.folders.path().join(&path)))?;
        for (name, stat) in entries(&folder, &path, self)? {
            if let Some(digest) = digest_of(shard, area.part_of(&name)) {
                act(&folder, digest, &name, &stat).map_err(|errno| {
                    StoreError::of(errno, "collect", &self.folders.path().join(&path).join(&name))
                })?;
            }
        }
        Ok(())
    }
}

/// The entries of an open folder that have UTF-8 names, which all of a store have, and what the system says of them.
fn entries(folder: &OwnedFd, path: &str, store: &Inner) -> Result<Vec<(String, Stat)>, StoreError> {
    let failed = |errno| StoreError::of(errno, "list", &store.folders.path().join(path));
    let mut entries = Vec::new();
    for entry in Dir::read_from(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name == "." || name == ".." {
            continue;
        }
        match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => entries.push((name.to_owned(), stat)),
            // Gone meanwhile.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(entries)
}

/// Whether it was there.
fn remove(folder: &OwnedFd, name: &str) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

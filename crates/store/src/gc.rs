//! Garbage collection of unused contents, and the sweep of temporary files that crashes left.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use conjure_base::{Digest, Timestamp};
use conjure_fs::{FileLock, file_size};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::file_mode::FileMode;
use crate::stat::last_access;
use crate::store::{Inner, Store};
use crate::store_dirs::parse_content_name;

/// Result of [`Store::sweep`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Number of removed temporary files. Their writers have ended.
    pub removed: u64,
    /// Size of the removed files in bytes.
    pub bytes: u64,
    /// Number of temporary files that stay, since their writers still run.
    pub alive: u64,
}

/// Result of [`Store::collect_garbage`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Number of removed contents.
    pub removed: u64,
    /// Size of the removed contents in bytes. Content that a sandbox still links to frees its space only when that
    /// link is removed.
    pub bytes: u64,
    /// Number of contents that stay.
    pub kept: u64,
}

/// Disk usage of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreUsage {
    /// Number of contents. A content that is stored in both modes counts twice.
    pub contents: u64,
    /// Size of the contents in bytes.
    pub bytes: u64,
    /// Number of temporary files.
    pub temporary: u64,
}

impl Store {
    /// Removes the temporary files of writers that have ended. A running writer holds a lock on its file.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn sweep(&self) -> Result<SweepReport, StoreError> {
        let dirs = &self.inner().dirs;
        let dir = dirs.temp_dir();
        let mut report = SweepReport::default();
        for (name, stat) in entries(dir, "temporary", self.inner())? {
            let failed = |errno| StoreError::from_errno(errno, "sweep", &dirs.temp_path(&name));
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = match rustix::fs::openat(dir, name.as_str(), flags, Mode::empty()) {
                    Err(Errno::NOENT) => continue,
                    other => other.map_err(failed)?,
                };
                let Some(_lock) = FileLock::try_exclusive(file).map_err(failed)? else {
                    report.alive += 1;
                    continue;
                };
                // The sweep holds the lock during the removal. A writer that has just created the file finds it
                // locked, and takes another name.
                if remove(dir, &name).map_err(failed)? {
                    report.removed += 1;
                    report.bytes += file_size(&stat);
                }
            }
        }
        Ok(report)
    }

    /// Removes the contents for which `is_live` returns false and that were not inserted, linked or looked up since
    /// `unused_since`.
    ///
    /// The time protects contents that are about to be used. Another caller may insert an existing content or look it
    /// up while this call runs, and `is_live` does not know that yet. So `unused_since` should lie further back than
    /// the time from a lookup to the link; an hour is enough. A use is recorded at most once a minute.
    ///
    /// # Errors
    /// `ReadOnly` where nothing can be removed, and any other error of the system.
    pub fn collect_garbage(
        &self,
        mut is_live: impl FnMut(&Digest) -> bool,
        unused_since: Timestamp,
    ) -> Result<GcReport, StoreError> {
        let mut report = GcReport::default();
        for mode in FileMode::ALL {
            for shard in self.inner().shards(mode)? {
                // One lock per shard, so that insertions can run in between.
                let _lock = self.inner().dirs.lock(FileLock::exclusive)?;
                self.inner().for_each_content(mode, &shard, |dir, digest, name, stat| {
                    let is_old = last_access(stat).millis() < unused_since.millis();
                    if is_old && !is_live(&digest) && remove(dir, name)? {
                        report.removed += 1;
                        report.bytes += file_size(stat);
                    } else {
                        report.kept += 1;
                    }
                    Ok(())
                })?;
            }
        }
        Ok(report)
    }

    /// The digests of the contents that have links outside the store. Removing one of these frees no space yet.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn linked_digests(&self) -> Result<HashSet<Digest>, StoreError> {
        let mut linked = HashSet::new();
        for mode in FileMode::ALL {
            for shard in self.inner().shards(mode)? {
                self.inner().for_each_content(mode, &shard, |_, digest, _, stat| {
                    if stat.st_nlink > 1 {
                        linked.insert(digest);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(linked)
    }

    /// Measures the disk usage of the store.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn usage(&self) -> Result<StoreUsage, StoreError> {
        let inner = self.inner();
        let temporary = entries(inner.dirs.temp_dir(), "temporary", inner)?.len() as u64;
        let mut usage = StoreUsage { temporary, ..StoreUsage::default() };
        for mode in FileMode::ALL {
            for shard in inner.shards(mode)? {
                inner.for_each_content(mode, &shard, |_, _, _, stat| {
                    usage.contents += 1;
                    usage.bytes += file_size(stat);
                    Ok(())
                })?;
            }
        }
        Ok(usage)
    }

    /// The digests and modes of all contents, in no particular order.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn digests(&self) -> Result<Vec<(Digest, FileMode)>, StoreError> {
        let mut digests = Vec::new();
        for mode in FileMode::ALL {
            for shard in self.inner().shards(mode)? {
                self.inner().for_each_content(mode, &shard, |_, digest, _, _| {
                    digests.push((digest, mode));
                    Ok(())
                })?;
            }
        }
        Ok(digests)
    }
}

impl Inner {
    fn shards(&self, mode: FileMode) -> Result<Vec<String>, StoreError> {
        let found = entries(self.dirs.content_dir(mode), mode.dir_name(), self)?;
        Ok(found.into_iter().map(|(name, _)| name).filter(|name| name.len() == 2).collect())
    }

    /// Calls `act` for each content of a shard.
    fn for_each_content(
        &self,
        mode: FileMode,
        shard: &str,
        mut act: impl FnMut(&OwnedFd, Digest, &str, &Stat) -> Result<(), Errno>,
    ) -> Result<(), StoreError> {
        let path = format!("{}/{shard}", mode.dir_name());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(self.dirs.content_dir(mode), shard, flags, Mode::empty())
            .map_err(|errno| StoreError::from_errno(errno, "list", &self.dirs.path().join(&path)))?;
        for (name, stat) in entries(&dir, &path, self)? {
            if let Some(digest) = parse_content_name(shard, &name) {
                act(&dir, digest, &name, &stat).map_err(|errno| {
                    StoreError::from_errno(errno, "collect", &self.dirs.path().join(&path).join(&name))
                })?;
            }
        }
        Ok(())
    }
}

/// The entries of an open directory with UTF-8 names, and their `stat`. All files of a store have such names.
fn entries(dir: &OwnedFd, path: &str, store: &Inner) -> Result<Vec<(String, Stat)>, StoreError> {
    let failed = |errno| StoreError::from_errno(errno, "list", &store.dirs.path().join(path));
    let mut entries = Vec::new();
    for entry in Dir::read_from(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name == "." || name == ".." {
            continue;
        }
        match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => entries.push((name.to_owned(), stat)),
            // Another process has removed it.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(entries)
}

/// Removes a file. Returns whether it existed.
fn remove(dir: &OwnedFd, name: &str) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

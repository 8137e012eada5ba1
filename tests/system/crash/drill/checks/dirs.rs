//! Files in the directories of hosts: sandboxes, process locks, partial files, and temporary directories.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::drill::Result;
use crate::drill::checks::findings::Findings;
use crate::drill::fixture::{TENANTS, data_dir, temporary_dir, tenant_dir};
use crate::drill::process::Identity;

/// The activity of hosts during the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quiet {
    /// Some of them work.
    NotAll,
    /// There is one, which waits.
    AllWait,
    /// There is none, and the last one ended in order.
    AllStopped,
}

/// Looks for what is of no host that lives.
pub(crate) fn check(dir: &Path, living: &[Identity], quiet: Quiet, findings: &mut Findings) -> Result<()> {
    for tenant in TENANTS {
        let tenant = tenant_dir(dir, tenant);
        for path in ["sandboxes", "workspaces"].iter().flat_map(|name| entries(&tenant.join(name))) {
            let name = name_of(&path);
            // Those of sessions are looked at with the record; somebody may be removing one just now.
            let is_live = name.starts_with("ses_")
                || quiet == Quiet::NotAll && name.starts_with("dead-")
                || living.iter().any(|host| name.starts_with(&format!("{}-", host.pid)));
            if !is_live {
                findings.leftover.push(format!("the directory `{}`", path.display()));
            }
        }
        if quiet != Quiet::NotAll {
            let drafts = entries(&tenant.join("skills"))
                .into_iter()
                .filter(|path| name_of(path).starts_with("draft-"));
            findings.leftover.extend(drafts.map(|path| format!("half a skill in `{}`", path.display())));
            let marks = entries(&tenant.join("pending")).into_iter();
            findings.leftover.extend(marks.map(|path| format!("`{}`, of what broke off", path.display())));
        }
    }
    for path in entries(&data_dir(dir).join("processes")) {
        let is_remembered = [".dead", ".lock"].iter().any(|ending| name_of(&path).ends_with(ending));
        // It is locked as long as its process lives.
        let is_abandoned = || File::open(&path).is_ok_and(|file| file.try_lock_shared().is_ok());
        if !is_remembered && is_abandoned() {
            findings.leftover.push(format!("the mark of a host `{}`", path.display()));
        }
    }
    if quiet != Quiet::NotAll {
        let temporary = entries(&temporary_dir(dir)).into_iter();
        findings.leftover.extend(temporary.map(|path| format!("the temporary `{}`", path.display())));
    }
    Ok(())
}

pub(super) fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// True if a file in the directory contains these bytes. Files that are deleted in the meantime do not count.
pub(super) fn holding(dir: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in entries(dir) {
        let Ok(kind) = fs::symlink_metadata(&path) else { continue };
        if kind.is_dir() {
            found.append(&mut holding(&path, bytes));
        } else if kind.is_file()
            && fs::read(&path).is_ok_and(|read| read.windows(bytes.len()).any(|window| window == bytes))
        {
            found.push(path);
        }
    }
    found
}

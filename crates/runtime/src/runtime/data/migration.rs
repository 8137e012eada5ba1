//! Renames what earlier versions named differently in a data directory, and keeps those versions out of it.
//!
//! | former name | name |
//! |---|---|
//! | `hosts/` | `processes/` |
//! | `remains/` | `remote-cleanup/` |
//! | `tenants/T/under-way/` | `tenants/T/pending/` |
//! | `tenants/T/gate.lock` | `tenants/T/tenant.lock` |
//! | `tenants/T/workspaces/S/incoming/` | `tenants/T/workspaces/S/staging/` |
//! | `tenants/T/collected`, `pool/collected` | `last-gc` |
//!
//! Earlier versions lock other files. So a process of an earlier version and one of this version must never use a data
//! directory at the same time. Two rules ensure this:
//!
//! - A process of this version starts only when no process of an earlier version lives.
//! - It leaves a file `hosts`, where earlier versions need a directory. So they fail to start.
//!
//! State: the file `hosts`. It is written after all names are changed. If a process crashes before that, the directory
//! `hosts` remains, and the next start changes the remaining names.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use conjure_fs::FileLock;
use rustix::io::Errno;

use crate::runtime::error::RuntimeError;

/// The directory of earlier versions for the lock files of processes.
const FORMER_PROCESSES: &str = "hosts";

/// The file in [`FORMER_PROCESSES`] that a starting process locked.
const FORMER_STARTUP_LOCK: &str = "begin.turn";

/// The content of the file `hosts`.
const NOTICE: &str = "\
A newer version of Conjure uses this data directory. This file keeps out versions that have a directory `hosts` here,
because they would lock other files. Do not remove it.
";

/// How often the directory of earlier versions is inspected again because another process created or renamed it.
const RACES: u32 = 8;

/// Renames everything in this data directory that has a former name, and locks earlier versions out. Blocks while other
/// processes start.
///
/// # Errors
/// When a process of an earlier version uses the directory, or when something cannot be renamed.
pub(crate) fn migrate(data: &Path) -> Result<(), RuntimeError> {
    let former = data.join(FORMER_PROCESSES);
    for _ in 0..RACES {
        let done = match fs::symlink_metadata(&former) {
            Ok(found) if !found.is_dir() => return Ok(()),
            Ok(_) => rename_all(data, &former),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match write_notice(&former) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        done.map_err(|error| RuntimeError::data(data, &error))?;
    }
    Err(RuntimeError::data(
        &former,
        &"other processes create it again and again; stop those of earlier versions",
    ))
}

fn write_notice(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(NOTICE.as_bytes())
}

fn rename_all(data: &Path, former: &Path) -> io::Result<()> {
    let startup = former.join(FORMER_STARTUP_LOCK);
    let _lock = match FileLock::open(&startup) {
        // Another process has just renamed the directory.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        file => FileLock::exclusive(file?)?,
    };
    if !former.is_dir() {
        return Ok(());
    }
    if let Some(path) = live_process(former) {
        return Err(io::Error::other(format!(
            "a process of an earlier version of Conjure uses it and locks `{}`; stop that process first",
            path.display()
        )));
    }
    tracing::info!(data = %data.display(), "renaming what an earlier version of Conjure named differently");
    rename(&data.join("remains"), &data.join("remote-cleanup"))?;
    for dir in entries(&data.join("tenants")).chain([data.join("pool")]) {
        rename(&dir.join("under-way"), &dir.join("pending"))?;
        rename(&dir.join("gate.lock"), &dir.join("tenant.lock"))?;
        rename(&dir.join("collected"), &dir.join("last-gc"))?;
        for workspace in entries(&dir.join("workspaces")) {
            rename(&workspace.join("incoming"), &workspace.join("staging"))?;
        }
    }
    let processes = data.join("processes");
    rename(former, &processes)?;
    // A process of an earlier version that waits for this lock finds that the directory is missing.
    fs::remove_file(processes.join(FORMER_STARTUP_LOCK))
}

/// The lock file of a live process of an earlier version.
fn live_process(former: &Path) -> Option<PathBuf> {
    entries(former).filter(|path| !path.ends_with(FORMER_STARTUP_LOCK)).find(|path| {
        // A file that disappeared is that of a process that stopped.
        File::open(path).is_ok_and(|file| !matches!(FileLock::try_shared(file), Ok(Some(_))))
    })
}

/// Renames a file or a directory, if it exists. If both directories exist, the entries of the former one are moved.
fn rename(former: &Path, current: &Path) -> io::Result<()> {
    match fs::rename(former, current) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            for entry in entries(former) {
                if let Some(name) = entry.file_name() {
                    fs::rename(&entry, current.join(name))?;
                }
            }
            fs::remove_dir(former)
        }
        renamed => renamed,
    }
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "content").unwrap();
    }

    fn files(dir: &Path) -> Vec<String> {
        let mut found: Vec<String> = entries(dir)
            .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path.display().to_string()] })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn everything_gets_its_current_name_also_after_a_crash() {
        let (data, expected) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let both = [
            ("hosts/a1b2", "processes/a1b2"),
            ("hosts/c3d4.dead", "processes/c3d4.dead"),
            ("remains/ses_1.json", "remote-cleanup/ses_1.json"),
            ("tenants/acme/under-way/ses_1", "tenants/acme/pending/ses_1"),
            ("tenants/acme/gate.lock", "tenants/acme/tenant.lock"),
            ("tenants/acme/collected", "tenants/acme/last-gc"),
            ("tenants/acme/workspaces/ses_1/incoming/file", "tenants/acme/workspaces/ses_1/staging/file"),
            (
                "tenants/acme/workspaces/ses_1/workspace/incoming/file",
                "tenants/acme/workspaces/ses_1/workspace/incoming/file",
            ),
            ("tenants/under-way/gate.lock", "tenants/under-way/tenant.lock"),
            ("pool/collected", "pool/last-gc"),
        ];
        for (former, current) in both {
            write(&data.path().join(former));
            write(&expected.path().join(current));
        }
        write(&data.path().join("hosts/begin.turn"));
        write_notice(&expected.path().join("hosts")).unwrap();
        // A start that crashed, and a version before that was started again, left some under both names.
        write(&data.path().join("processes/e5f6"));
        write(&expected.path().join("processes/e5f6"));
        write(&data.path().join("remote-cleanup/ses_2.json"));
        write(&expected.path().join("remote-cleanup/ses_2.json"));
        for _ in 0..2 {
            migrate(data.path()).unwrap();
            let names = |dir: &Path| -> Vec<String> {
                files(dir).iter().map(|path| path.replace(dir.to_str().unwrap(), "")).collect()
            };
            assert_eq!(names(data.path()), names(expected.path()));
        }
        // Earlier versions create the directory with this call, and fail.
        fs::create_dir_all(data.path().join("hosts")).unwrap_err();
    }

    #[test]
    fn a_new_data_directory_is_closed_to_earlier_versions() {
        let data = tempfile::tempdir().unwrap();
        migrate(data.path()).unwrap();
        assert_eq!(fs::read_to_string(data.path().join("hosts")).unwrap(), NOTICE);
        fs::create_dir_all(data.path().join("hosts")).unwrap_err();
    }

    #[test]
    fn nothing_is_renamed_while_a_process_of_an_earlier_version_lives() {
        let data = tempfile::tempdir().unwrap();
        write(&data.path().join("hosts/a1b2"));
        write(&data.path().join("remains/ses_1.json"));
        let lives = File::open(data.path().join("hosts/a1b2")).unwrap();
        lives.try_lock().unwrap();
        let error = migrate(data.path()).unwrap_err();
        assert!(error.to_string().contains("stop that process first"), "{error}");
        assert!(data.path().join("remains/ses_1.json").exists());
        drop(lives);
        migrate(data.path()).unwrap();
        assert!(data.path().join("remote-cleanup/ses_1.json").exists());
    }

    #[test]
    fn processes_that_start_at_once_do_not_disturb_each_other() {
        let data = tempfile::tempdir().unwrap();
        for number in 0..20 {
            write(&data.path().join(format!("hosts/{number}.dead")));
        }
        std::thread::scope(|scope| {
            let starting: Vec<_> = (0..6).map(|_| scope.spawn(|| migrate(data.path()))).collect();
            for start in starting {
                start.join().unwrap().unwrap();
            }
        });
        assert_eq!(entries(&data.path().join("processes")).count(), 20);
    }
}

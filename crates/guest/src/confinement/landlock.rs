//! File access rules by Landlock. They are a second barrier behind the mounts of a sandbox, and the only one
//! without mounts. The rules also apply to the guest, so they grant what the guest needs: see [`apply_ruleset`].

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use conjure_guest::protocol::{FileRules, SpillAccess};

use crate::sys;

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SOCK: u64 = 1 << 9;
const MAKE_FIFO: u64 = 1 << 10;
const MAKE_BLOCK: u64 = 1 << 11;
const MAKE_SYM: u64 = 1 << 12;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;

const READ: u64 = EXECUTE | READ_FILE | READ_DIR;
/// Everything except creating devices.
const WRITE: u64 = READ
    | WRITE_FILE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_SYM
    | REFER
    | TRUNCATE;
const DEVICE: u64 = READ_FILE | WRITE_FILE | IOCTL_DEV;
/// The rights that apply to files.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

const SCOPE_ABSTRACT_SOCKETS: u64 = 1;

/// The first version that supports moving files to another directory (`REFER`). Older versions always refuse it,
/// which breaks too many programs.
const ABI_MIN: u32 = 2;

/// All rights that are known here. The ruleset handles the creation of devices and grants it to no process.
const ALL: u64 = WRITE | MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV;

/// The rights that a version handles. Rights that are not handled are not refused.
fn handled(abi: u32) -> u64 {
    let later = [(2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)];
    later.iter().filter(|(version, _)| abi < *version).fold(ALL, |rights, (_, unknown)| rights & !unknown)
}

/// The actions that are scoped. Signals are not: a later command must be able to end leftover processes of an earlier
/// one.
fn scoped(abi: u32) -> u64 {
    if abi >= 6 { SCOPE_ABSTRACT_SOCKETS } else { 0 }
}

/// The result of applying a ruleset.
#[derive(Debug)]
pub(super) struct LandlockResult {
    /// The Landlock version.
    pub(super) abi: u32,
    /// The additional ruleset of every command, when it differs from the guest's own.
    pub(super) for_commands: Option<OwnedFd>,
}

/// Restricts this process and its children to these files: those of `rules`, the directories `roots` (path, and whether
/// they are writable), and the directories `own`, which the guest writes. The guest cannot start or supervise programs
/// without the names in `/` and without `/proc`, so these are readable, too. Fails with the reason when Landlock is
/// not available.
pub(super) fn apply_ruleset<'a>(
    rules: &'a FileRules,
    roots: impl Iterator<Item = (&'a str, bool)> + Clone,
    own: impl Iterator<Item = &'a str> + Clone,
) -> Result<LandlockResult, String> {
    let abi = match sys::landlock_abi() {
        Ok(abi) => abi,
        Err(Errno::NOSYS) => {
            return Err("the kernel has no Landlock; Linux 5.19 or later is needed".to_owned());
        }
        Err(Errno::OPNOTSUPP) => {
            return Err(
                "Landlock is switched off; add `landlock` to `lsm=` of the kernel's command line".to_owned()
            );
        }
        Err(errno) => return Err(format!("the kernel does not report its Landlock version ({errno})")),
    };
    if abi < ABI_MIN {
        return Err(format!(
            "the kernel's Landlock is version {abi}; {ABI_MIN} is needed, Linux 5.19 or later"
        ));
    }
    let has_own = own.clone().next().is_some();
    let for_commands = match rules.output {
        // The directories are read-only for commands if they lie beneath a root. The scope is that of the guest's own
        // ruleset.
        SpillAccess::GuestOnly if has_own => Some(ruleset(rules, roots.clone(), handled(abi), 0)?),
        _ => None,
    };
    // The guest writes there.
    let own = own.map(|path| (path, true));
    let own = ruleset(rules, roots.chain(own), handled(abi), scoped(abi))?;
    sys::landlock_restrict(own.as_fd()).map_err(|errno| format!("Landlock cannot be enabled ({errno})"))?;
    Ok(LandlockResult { abi, for_commands })
}

/// Creates a ruleset without applying it.
fn ruleset<'a>(
    rules: &'a FileRules,
    roots: impl Iterator<Item = (&'a str, bool)>,
    handled: u64,
    scoped: u64,
) -> Result<OwnedFd, String> {
    let ruleset = sys::landlock_ruleset(handled, scoped)
        .map_err(|errno| format!("Landlock cannot create a ruleset ({errno})"))?;
    let roots = roots.map(|(path, is_writable)| (path, if is_writable { WRITE } else { READ }));
    let listed = [(&rules.read, READ), (&rules.write, WRITE), (&rules.devices, DEVICE)];
    let listed =
        listed.into_iter().flat_map(|(paths, rights)| paths.iter().map(move |path| (path.as_str(), rights)));
    for (path, rights) in [("/", READ_DIR), ("/proc", READ)].into_iter().chain(roots).chain(listed) {
        allow(&ruleset, path, rights & handled)
            .map_err(|errno| format!("Landlock cannot grant `{path}` ({errno})"))?;
    }
    Ok(ruleset)
}

/// Grants rights on a path. A path that does not exist or cannot be reached needs no rule.
fn allow(ruleset: &OwnedFd, path: &str, rights: u64) -> Result<(), Errno> {
    let beneath = match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(beneath) => beneath,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let stat = rustix::fs::fstat(&beneath)?;
    let is_dir = FileType::from_raw_mode(stat.st_mode).is_dir();
    let rights = if is_dir { rights } else { rights & OF_FILES };
    sys::landlock_allow(ruleset.as_fd(), beneath.as_fd(), rights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_those_that_the_version_knows() {
        assert_eq!(handled(1), 0x1fff);
        assert_eq!(handled(2), 0x3fff);
        assert_eq!(handled(4), 0x7fff);
        assert_eq!(handled(7), 0xffff);
        assert_eq!((scoped(5), scoped(6)), (0, 1));
    }
}

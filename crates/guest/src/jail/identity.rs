//! The user of a jail, on the host and inside, and its privileges: none.

use std::fs;

use rustix::process::{DumpableBehavior, Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use conjure_guest::protocol::{Identity, SetupStep};

use crate::sys;

use super::setup_error::{SetupResult, from_io_error, setup_error};

const NO_CAPABILITIES: CapabilitySets = CapabilitySets {
    effective: CapabilitySet::empty(),
    permitted: CapabilitySet::empty(),
    inheritable: CapabilitySet::empty(),
};

/// Changes to this user and group of the host for good, without other groups and privileges.
pub(super) fn become_user(user: u32) -> SetupResult<()> {
    let failed = |errno| setup_error(SetupStep::Identity, format!("become the user {user}"))(errno);
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::thread::set_thread_groups(&[]).map_err(failed)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(failed)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(failed)?;
    // Usually no capabilities are left. Some may be left when the host was started with unusual security bits.
    rustix::thread::set_capabilities(None, NO_CAPABILITIES).map_err(failed)?;
    // A process that changed its user may not write its ID maps unless it is dumpable.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(failed)
}

/// Maps the host's user and group into the user namespace of this process. It has no others.
pub(super) fn map_user(identity: &Identity, uid: Uid, gid: Gid) -> SetupResult<()> {
    let maps = [
        // Without this, only root may write the group map.
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{} {} 1", identity.uid, uid.as_raw())),
        ("gid_map", format!("{} {} 1", identity.gid, gid.as_raw())),
    ];
    for (name, content) in maps {
        let path = format!("/proc/self/{name}");
        fs::write(&path, content).map_err(from_io_error(SetupStep::UserMap, format!("write `{path}`")))?;
    }
    Ok(())
}

/// Drops all privileges in the user namespace, for this process and its children.
pub(super) fn give_up_privileges() -> SetupResult<()> {
    let failed = |errno| setup_error(SetupStep::Privileges, "give up all privileges")(errno);
    rustix::thread::clear_ambient_capability_set().map_err(failed)?;
    sys::clear_bounding_set().map_err(failed)?;
    rustix::thread::set_capabilities(None, NO_CAPABILITIES).map_err(failed)?;
    rustix::thread::set_no_new_privs(true).map_err(failed)
}

//! Who the processes of a jail are, on the host and inside, and that they may do nothing beyond that.

use std::fs;

use rustix::process::{DumpableBehavior, Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use conjure_guest::protocol::{Identity, SetupStep};

use crate::sys;

use super::failure::{Done, at, of_io};

const NO_CAPABILITIES: CapabilitySets = CapabilitySets {
    effective: CapabilitySet::empty(),
    permitted: CapabilitySet::empty(),
    inheritable: CapabilitySet::empty(),
};

/// Becomes this user and group of the host's for ever, without other groups and without privileges.
pub(super) fn become_user(user: u32) -> Done<()> {
    let refused = |errno| at(SetupStep::Identity, format!("become the user {user}"))(errno);
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::thread::set_thread_groups(&[]).map_err(refused)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(refused)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(refused)?;
    // Usually they are gone by now; not where a host was started with unusual security bits.
    rustix::thread::set_capabilities(None, NO_CAPABILITIES).map_err(refused)?;
    // A process that changed its user may not write what its user is called inside.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(refused)
}

/// Says who the user and group of the host's are in the user namespace of this process: the only ones there.
pub(super) fn map_user(identity: &Identity, uid: Uid, gid: Gid) -> Done<()> {
    let maps = [
        // Without this, nobody but root may say what groups there are.
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{} {} 1", identity.uid, uid.as_raw())),
        ("gid_map", format!("{} {} 1", identity.gid, gid.as_raw())),
    ];
    for (name, content) in maps {
        let path = format!("/proc/self/{name}");
        fs::write(&path, content).map_err(of_io(SetupStep::UserMap, format!("write `{path}`")))?;
    }
    Ok(())
}

/// Gives up every privilege in the user namespace, for this process and all that it will start.
pub(super) fn give_up_privileges() -> Done<()> {
    let refused = |errno| at(SetupStep::Privileges, "give up all privileges")(errno);
    rustix::thread::clear_ambient_capability_set().map_err(refused)?;
    sys::clear_bounding_set().map_err(refused)?;
    rustix::thread::set_capabilities(None, NO_CAPABILITIES).map_err(refused)?;
    rustix::thread::set_no_new_privs(true).map_err(refused)
}

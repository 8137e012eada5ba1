//! Checks which isolation features the kernel has. The `local` sandbox needs none of them, because it isolates nothing.

use std::fs;

use conjure::sandbox::Cgroups;

use crate::cli::doctor::check::{Check, Finding};

/// All checks of the kernel.
pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![user_namespaces(), landlock(), seccomp()];
    checks.extend(cgroups());
    checks
}

fn user_namespaces() -> Check {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let check = |finding| Check::new("user namespaces", finding);
    match number("/proc/sys/user/max_user_namespaces") {
        None => check(Finding::Missing("this kernel has none".to_owned()))
            .remedy("a kernel with CONFIG_USER_NS; needed for isolation without root"),
        Some(0) => check(Finding::Missing("switched off: their number is limited to 0".to_owned()))
            .remedy("sysctl user.max_user_namespaces=15000"),
        Some(_) if number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) => {
            check(Finding::Missing("switched off for ordinary users".to_owned()))
                .remedy("sysctl kernel.unprivileged_userns_clone=1")
        }
        Some(_) if number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) => check(
            Finding::Missing("restricted by AppArmor".to_owned()),
        )
        .remedy("sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a profile for this program"),
        Some(most) => check(Finding::Good(format!("permitted by the kernel's settings (at most {most})"))),
    }
}

fn landlock() -> Check {
    let check = |finding| Check::new("Landlock", finding);
    match fs::read_to_string("/sys/kernel/security/lsm") {
        Ok(modules) if modules.split(',').any(|module| module.trim() == "landlock") => {
            check(Finding::Good("active".to_owned()))
        }
        Ok(modules) => check(Finding::Missing(format!("not among the active modules ({})", modules.trim())))
            .remedy("add `landlock` to the kernel's `lsm=` parameter; Linux 5.19 or later"),
        Err(error) => check(Finding::Unknown(format!("/sys/kernel/security/lsm: {error}")))
            .remedy("mount securityfs at /sys/kernel/security to tell"),
    }
}

fn seccomp() -> Check {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    if actions.split_whitespace().any(|action| action == "errno") {
        Check::new("seccomp", Finding::Good("filters can be installed".to_owned()))
    } else {
        Check::new("seccomp", Finding::Missing("this kernel has no filters".to_owned()))
            .remedy("a kernel with CONFIG_SECCOMP_FILTER")
    }
}

/// Checks which limits control groups can set for this user.
fn cgroups() -> Vec<Check> {
    let groups = Cgroups::detect();
    let missing = groups.missing().iter().map(|missing| {
        let name = match missing.controller {
            "memory" => "cgroup memory",
            "cpu" => "cgroup cpu",
            _ => "cgroup pids",
        };
        Check::new(name, Finding::Missing(missing.reason.clone())).remedy(missing.hint)
    });
    let checks: Vec<Check> = missing.collect();
    if checks.is_empty() {
        let found = "memory, processors and processes can be limited".to_owned();
        return vec![Check::new("cgroups", Finding::Good(found))];
    }
    checks
}

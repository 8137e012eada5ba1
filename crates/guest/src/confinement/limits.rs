//! The resource limits of a process.

use rustix::process::{Resource, Rlimit, getrlimit};

use conjure_guest::protocol::ProcessLimits;

/// Returns the limits for a new program: those of `limits`. The limit of open files is at least the one that the
/// guest was started with.
pub(crate) fn program_limits(limits: &ProcessLimits, open_files: Rlimit) -> Vec<(Resource, Rlimit)> {
    let asked = [
        (Resource::Core, limits.core_bytes),
        (Resource::Nofile, limits.open_files),
        (Resource::Fsize, limits.file_bytes),
        (Resource::As, limits.memory_bytes),
        (Resource::Nproc, limits.processes),
        (Resource::Cpu, limits.cpu_seconds),
    ];
    let asked = asked.into_iter().filter_map(|(resource, most)| {
        let most = most?;
        // The guest has raised its own soft limit of open files, but no hard limit.
        let current = getrlimit(resource);
        Some((resource, lowered(resource, most, current)))
    });
    // Only the soft limit, which the guest had raised for itself.
    let unasked = limits.open_files.is_none().then_some((Resource::Nofile, open_files));
    unasked.into_iter().chain(asked).collect()
}

/// Returns a limit of at most `most`: the current one if that is lower.
fn lowered(resource: Resource, most: u64, current: Rlimit) -> Rlimit {
    let capped = |value: u64| Some(current.maximum.map_or(value, |maximum| maximum.min(value)));
    // At the soft limit, a program gets a signal. At the hard limit, one second later, it is killed.
    let hard = if resource == Resource::Cpu { most.saturating_add(1) } else { most };
    Rlimit { current: capped(most), maximum: capped(hard) }
}

/// Names a resource for messages.
pub(crate) fn limit_name(resource: Resource) -> &'static str {
    match resource {
        Resource::Core => "the size of core dumps",
        Resource::Nofile => "open files",
        Resource::Fsize => "the size of a file",
        Resource::As => "memory",
        Resource::Nproc => "processes",
        Resource::Cpu => "processor time",
        _ => "a resource",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_never_raised() {
        let check = |resource, most, maximum, expected: (u64, u64)| {
            let current = Rlimit { current: maximum, maximum };
            let limit = lowered(resource, most, current);
            assert_eq!((limit.current, limit.maximum), (Some(expected.0), Some(expected.1)));
        };
        check(Resource::Nofile, 64, None, (64, 64));
        check(Resource::Nofile, 64, Some(1024), (64, 64));
        check(Resource::Nofile, 4096, Some(1024), (1024, 1024));
        check(Resource::Core, 0, None, (0, 0));
        check(Resource::Cpu, 5, None, (5, 6));
        check(Resource::Cpu, 5, Some(3), (3, 3));
        check(Resource::Cpu, u64::MAX, Some(3), (3, 3));
    }
}

//! The isolation of a sandbox: which boundaries are promised, enforced and required.

use crate::error::{SandboxError, SandboxErrorKind};

/// Whether a sandbox enforces a boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Boundary {
    /// The kernel enforces it, also against hostile commands.
    Enforced,
    /// The sandbox monitors it and ends commands that exceed it, so hostile commands can exceed it by a little. As a
    /// floor it counts as enforced.
    Watched,
    /// Nothing enforces it: commands can do what the host's user can.
    Open,
}

impl Boundary {
    /// `Enforced` if the condition holds.
    #[must_use]
    pub const fn enforced_if(condition: bool) -> Self {
        if condition { Self::Enforced } else { Self::Open }
    }

    /// `Watched` if the condition holds.
    #[must_use]
    pub const fn watched_if(condition: bool) -> Self {
        if condition { Self::Watched } else { Self::Open }
    }

    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Open, _) | (_, Self::Open) => Self::Open,
            (Self::Watched, _) | (_, Self::Watched) => Self::Watched,
            (Self::Enforced, Self::Enforced) => Self::Enforced,
        }
    }

    const fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Enforced, _) | (_, Self::Enforced) => Self::Enforced,
            (Self::Watched, _) | (_, Self::Watched) => Self::Watched,
            (Self::Open, Self::Open) => Self::Open,
        }
    }
}

/// The boundaries between a sandbox and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Isolation {
    /// Commands can access only the sandbox's files. In a jail they can read in `/proc/self/mountinfo` where these
    /// files are on the host, because the kernel shows the paths for every mount.
    pub filesystem: Boundary,
    /// Commands can reach only the hosts that the network policy allows.
    pub network: Boundary,
    /// Commands can see and signal only the sandbox's processes.
    pub processes: Boundary,
    /// Commands do not run with the rights of a host user that owns anything.
    pub identity: Boundary,
    /// Commands cannot make the system calls that attacks on a kernel usually begin with.
    pub syscalls: Boundary,
    /// Within the sandbox, commands cannot open the guest's own files, such as the complete text of cut output.
    pub files: Boundary,
    /// All processes of the sandbox together use no more memory than its limit.
    pub memory: Boundary,
    /// All processes of the sandbox together use no more processor time than its limit.
    pub processor: Boundary,
    /// The sandbox has no more processes than its limit.
    pub process_count: Boundary,
    /// The workspace uses no more of the disk than its limit: [`Boundary::Enforced`] by the kernel, or
    /// [`Boundary::Watched`] by the guest. The guest allows an excess of a sixteenth, at most 64 MiB and 4,096 files.
    /// Commands can write more until the guest notices: on a busy machine, 130 MB were measured (example `quota`).
    pub disk: Boundary,
}

/// Writes what treats each boundary alike.
macro_rules! for_each_boundary {
    ($($name:ident),*) => {
        impl Isolation {
            const fn all(boundary: Boundary) -> Self {
                Self { $($name: boundary),* }
            }

            fn named(&self) -> impl Iterator<Item = (&'static str, Boundary)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// The boundary of this name, as [`Isolation::open`] yields them.
            pub fn boundary_mut(&mut self, name: &str) -> Option<&mut Boundary> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)*
                    _ => None,
                }
            }

            /// The boundaries that both isolations enforce.
            #[must_use]
            pub const fn and(&self, other: &Self) -> Self {
                Self { $($name: self.$name.and(other.$name)),* }
            }

            /// The boundaries that at least one of the two enforces. So combining two floors never lowers one of them.
            #[must_use]
            pub const fn or(&self, other: &Self) -> Self {
                Self { $($name: self.$name.or(other.$name)),* }
            }
        }
    };
}

for_each_boundary!(
    filesystem,
    network,
    processes,
    identity,
    syscalls,
    files,
    memory,
    processor,
    process_count,
    disk
);

impl Isolation {
    /// No boundary at all.
    pub const NONE: Self = Self::all(Boundary::Open);

    /// Every boundary.
    pub const FULL: Self = Self::all(Boundary::Enforced);

    /// The names of the boundaries that are not enforced, for people.
    pub fn open(&self) -> impl Iterator<Item = &'static str> {
        self.named().filter_map(|(name, boundary)| (boundary == Boundary::Open).then_some(name))
    }

    /// The names of the boundaries that `floor` requires and that are not enforced here.
    pub fn missing(&self, floor: &Self) -> impl Iterator<Item = &'static str> {
        self.named().zip(floor.named()).filter_map(|((name, mine), (_, demanded))| {
            (demanded != Boundary::Open && mine == Boundary::Open).then_some(name)
        })
    }

    /// Refuses an isolation that is weaker than the floor.
    ///
    /// # Errors
    /// `NotEnforced`, with the names of the missing boundaries.
    pub fn require(&self, floor: &Self) -> Result<(), SandboxError> {
        let lacking: Vec<&str> = self.missing(floor).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        let message = format!(
            "the sandbox cannot enforce what is demanded of it: {}; take another kind of sandbox, or a machine that \
             permits it",
            lacking.join(", ")
        );
        Err(SandboxError::new(SandboxErrorKind::NotEnforced, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_refuses_what_is_weaker_and_takes_what_is_stronger() {
        let network = Isolation { network: Boundary::Enforced, ..Isolation::NONE };
        for (isolation, floor) in [(network, Isolation::NONE), (network, network), (Isolation::FULL, network)]
        {
            isolation.require(&floor).unwrap();
        }
        assert_eq!(Isolation::NONE.require(&network).unwrap_err().kind(), SandboxErrorKind::NotEnforced);
        assert_eq!(network.open().count(), Isolation::NONE.open().count() - 1);
        let demanded = Isolation { memory: Boundary::Enforced, ..network };
        assert_eq!(network.missing(&demanded).collect::<Vec<_>>(), ["memory"]);
    }

    #[test]
    fn what_two_enforce_together_is_what_each_of_them_does() {
        let network = Isolation { network: Boundary::Enforced, ..Isolation::NONE };
        assert_eq!(network.and(&Isolation::FULL), network);
        assert_eq!(Isolation::FULL.and(&Isolation::FULL), Isolation::FULL);
        assert_eq!(network.and(&Isolation::NONE), Isolation::NONE);
        assert_eq!(network.or(&Isolation::NONE), network);
        assert_eq!(network.or(&Isolation::FULL), Isolation::FULL);
    }

    #[test]
    fn every_boundary_is_found_by_its_name() {
        let mut all = Isolation::NONE;
        let names: Vec<_> = Isolation::NONE.open().collect();
        for name in names {
            *all.boundary_mut(name).unwrap() = Boundary::Enforced;
        }
        assert_eq!(all, Isolation::FULL);
        assert!(all.boundary_mut("no").is_none());
    }
}

//! The hosts that a limited network reaches.
//!
//! | entry | what it allows |
//! |---|---|
//! | `example.com` | this name, ports 80 and 443 |
//! | `*.example.com` | every name below it, at any depth, not the name itself; ports 80 and 443 |
//! | `example.com:8443`, `*.example.com:8443` | the same names, this port only |
//! | `192.0.2.7`, `[2001:db8::7]:8080` | this address, asked for as an address |
//!
//! A name on the list allows whatever public address it resolves to; an address allows no name that resolves to it.
//! The list is about whom to reach, [`crate::AddressPolicy`] about where that may lie: a private address is refused
//! although it is listed. It owns no state but its entries, which never change.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use crate::host::{Host, HostName};
use crate::target::{Target, TargetError, split};

/// The ports of an entry that names none: HTTP and HTTPS.
pub const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// Why a text is no entry of an allow-list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{entry}` is no entry of an allow-list: {reason}")]
pub struct AllowListError {
    entry: String,
    reason: EntryProblem,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum EntryProblem {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("write the host without the scheme and the path")]
    Url,
    #[error("a `*` stands only in front, as in `*.example.com`; to allow every host, use the policy `full`")]
    Wildcard,
}

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowEntry {
    hosts: Hosts,
    ports: Ports,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    Exactly(Host),
    Below(HostName),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ports {
    Default,
    Only(NonZeroU16),
}

impl AllowEntry {
    fn holds_host(&self, host: &Host) -> bool {
        match (&self.hosts, host) {
            (Hosts::Exactly(listed), host) => listed == host,
            (Hosts::Below(parent), Host::Name(name)) => name.is_below(parent),
            (Hosts::Below(_), Host::Address(_)) => false,
        }
    }

    /// What both allow.
    fn and(&self, other: &Self) -> Option<Self> {
        let hosts = match (&self.hosts, &other.hosts) {
            (Hosts::Exactly(one), _) if other.holds_host(one) => self.hosts.clone(),
            (_, Hosts::Exactly(one)) if self.holds_host(one) => other.hosts.clone(),
            (Hosts::Below(one), Hosts::Below(other)) if one == other || one.is_below(other) => {
                self.hosts.clone()
            }
            (Hosts::Below(one), Hosts::Below(parent)) if parent.is_below(one) => other.hosts.clone(),
            _ => return None,
        };
        let ports = match (self.ports, other.ports) {
            (Ports::Default, Ports::Default) => Ports::Default,
            (Ports::Default, Ports::Only(port)) | (Ports::Only(port), Ports::Default) => {
                DEFAULT_PORTS.contains(&port.get()).then_some(Ports::Only(port))?
            }
            (Ports::Only(port), Ports::Only(same)) => (port == same).then_some(Ports::Only(port))?,
        };
        Some(Self { hosts, ports })
    }

    fn ports(&self) -> Vec<u16> {
        match self.ports {
            Ports::Default => DEFAULT_PORTS.to_vec(),
            Ports::Only(port) => vec![port.get()],
        }
    }
}

impl FromStr for AllowEntry {
    type Err = AllowListError;

    fn from_str(text: &str) -> Result<Self, AllowListError> {
        read_entry(text).map_err(|reason| AllowListError { entry: text.chars().take(300).collect(), reason })
    }
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::Exactly(host) => host.fmt(formatter)?,
            Hosts::Below(parent) => write!(formatter, "*.{parent}")?,
        }
        match self.ports {
            Ports::Default => Ok(()),
            Ports::Only(port) => write!(formatter, ":{port}"),
        }
    }
}

fn read_entry(text: &str) -> Result<AllowEntry, EntryProblem> {
    if text.contains('/') {
        return Err(EntryProblem::Url);
    }
    let (wildcard, rest) = match text.strip_prefix("*.") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if rest.contains('*') {
        return Err(EntryProblem::Wildcard);
    }
    let (host, port) = split(rest)?;
    let hosts = match (wildcard, host) {
        (false, host) => Hosts::Exactly(host),
        (true, Host::Name(parent)) => Hosts::Below(parent),
        (true, Host::Address(_)) => return Err(EntryProblem::Wildcard),
    };
    Ok(AllowEntry { hosts, ports: port.map_or(Ports::Default, Ports::Only) })
}

/// Whether a target is on the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// It is.
    Listed,
    /// The host is, with these ports only.
    OtherPorts(Vec<u16>),
    /// The host is not.
    Unlisted,
}

/// The hosts that a limited network reaches. An empty list reaches none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList {
    entries: Vec<AllowEntry>,
}

impl AllowList {
    /// A list of these entries.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = AllowEntry>) -> Self {
        Self { entries: entries.into_iter().collect() }
    }

    /// The entries, as they were given.
    pub fn entries(&self) -> impl Iterator<Item = &AllowEntry> {
        self.entries.iter()
    }

    /// The list of what is on both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let pairs =
            self.entries.iter().flat_map(|mine| other.entries.iter().map(move |theirs| mine.and(theirs)));
        let mut entries: Vec<AllowEntry> = Vec::new();
        for entry in pairs.flatten() {
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        Self { entries }
    }

    /// Whether `target` is on the list.
    #[must_use]
    pub fn look_up(&self, target: &Target) -> Listing {
        let mut ports: Vec<u16> = self
            .entries
            .iter()
            .filter(|entry| entry.holds_host(target.host()))
            .flat_map(AllowEntry::ports)
            .collect();
        if ports.contains(&target.port()) {
            return Listing::Listed;
        }
        ports.sort_unstable();
        ports.dedup();
        if ports.is_empty() { Listing::Unlisted } else { Listing::OtherPorts(ports) }
    }
}

/// Reads entries that are separated by commas, with or without spaces; nothing is an empty list.
///
/// ```
/// use conjure_egress::{AllowList, Listing, Target};
///
/// let list: AllowList = "pypi.org, *.pythonhosted.org, git.example.com:8443".parse()?;
/// assert_eq!(list.look_up(&Target::parse("files.pythonhosted.org:443")?), Listing::Listed);
/// assert_eq!(list.look_up(&Target::parse("pypi.org:22")?), Listing::OtherPorts(vec![80, 443]));
/// assert_eq!(list.look_up(&Target::parse("notpypi.org:443")?), Listing::Unlisted);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl FromStr for AllowList {
    type Err = AllowListError;

    fn from_str(text: &str) -> Result<Self, AllowListError> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        Ok(Self { entries: entries.map(str::parse).collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for AllowList {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, entry) in self.entries.iter().enumerate() {
            let separator = if at == 0 { "" } else { "," };
            write!(formatter, "{separator}{entry}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

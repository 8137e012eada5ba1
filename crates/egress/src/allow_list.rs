//! The list of hosts that a limited network may reach.
//!
//! | entry | what it allows |
//! |---|---|
//! | `example.com` | this name, ports 80 and 443 |
//! | `*.example.com` | all subdomains at any depth, but not the name itself; ports 80 and 443 |
//! | `example.com:8443`, `*.example.com:8443` | the same names, this port only |
//! | `192.0.2.7`, `[2001:db8::7]:8080` | this address, when it is requested as an address |
//!
//! A listed name allows every public address to which it resolves. A listed address allows no name that resolves to it. The list
//! decides about hosts, [`crate::AddressPolicy`] about addresses: a private address is refused although it is listed. The
//! entries are the only state, and never change.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use crate::host::{Host, HostName};
use crate::target::{Target, TargetError, split_host_port};

/// The ports of an entry without a port: HTTP and HTTPS.
pub const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// The error of parsing a text that is not an entry of an allow list.
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

/// One entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowEntry {
    host_pattern: HostPattern,
    ports: PortPattern,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    Exact(Host),
    Subdomains(HostName),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PortPattern {
    Default,
    Only(NonZeroU16),
}

impl AllowEntry {
    fn matches_host(&self, host: &Host) -> bool {
        match (&self.host_pattern, host) {
            (HostPattern::Exact(listed), host) => listed == host,
            (HostPattern::Subdomains(parent), Host::Name(name)) => name.is_subdomain_of(parent),
            (HostPattern::Subdomains(_), Host::Address(_)) => false,
        }
    }

    /// The entry of what both entries allow; `None` where they have nothing in common.
    fn intersection(&self, other: &Self) -> Option<Self> {
        let hosts = match (&self.host_pattern, &other.host_pattern) {
            (HostPattern::Exact(one), _) if other.matches_host(one) => self.host_pattern.clone(),
            (_, HostPattern::Exact(one)) if self.matches_host(one) => other.host_pattern.clone(),
            (HostPattern::Subdomains(one), HostPattern::Subdomains(other))
                if one == other || one.is_subdomain_of(other) =>
            {
                self.host_pattern.clone()
            }
            (HostPattern::Subdomains(one), HostPattern::Subdomains(parent))
                if parent.is_subdomain_of(one) =>
            {
                other.host_pattern.clone()
            }
            _ => return None,
        };
        let ports = match (self.ports, other.ports) {
            (PortPattern::Default, PortPattern::Default) => PortPattern::Default,
            (PortPattern::Default, PortPattern::Only(port))
            | (PortPattern::Only(port), PortPattern::Default) => {
                DEFAULT_PORTS.contains(&port.get()).then_some(PortPattern::Only(port))?
            }
            (PortPattern::Only(port), PortPattern::Only(same)) => {
                (port == same).then_some(PortPattern::Only(port))?
            }
        };
        Some(Self { host_pattern: hosts, ports })
    }

    fn ports(&self) -> Vec<u16> {
        match self.ports {
            PortPattern::Default => DEFAULT_PORTS.to_vec(),
            PortPattern::Only(port) => vec![port.get()],
        }
    }
}

impl FromStr for AllowEntry {
    type Err = AllowListError;

    fn from_str(text: &str) -> Result<Self, AllowListError> {
        parse_entry(text).map_err(|reason| AllowListError { entry: text.chars().take(300).collect(), reason })
    }
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host_pattern {
            HostPattern::Exact(host) => host.fmt(formatter)?,
            HostPattern::Subdomains(parent) => write!(formatter, "*.{parent}")?,
        }
        match self.ports {
            PortPattern::Default => Ok(()),
            PortPattern::Only(port) => write!(formatter, ":{port}"),
        }
    }
}

fn parse_entry(text: &str) -> Result<AllowEntry, EntryProblem> {
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
    let (host, port) = split_host_port(rest)?;
    let hosts = match (wildcard, host) {
        (false, host) => HostPattern::Exact(host),
        (true, Host::Name(parent)) => HostPattern::Subdomains(parent),
        (true, Host::Address(_)) => return Err(EntryProblem::Wildcard),
    };
    Ok(AllowEntry { host_pattern: hosts, ports: port.map_or(PortPattern::Default, PortPattern::Only) })
}

/// The result of [`AllowList::lookup`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowListMatch {
    /// The host and the port are on the list.
    Listed,
    /// The host is on the list with other ports, which are these.
    OtherPorts(Vec<u16>),
    /// The host is not on the list.
    NotListed,
}

/// The list of hosts that a limited network may reach. An empty list allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList {
    entries: Vec<AllowEntry>,
}

impl AllowList {
    /// The list of these entries.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = AllowEntry>) -> Self {
        Self { entries: entries.into_iter().collect() }
    }

    /// The entries, in their original order.
    pub fn entries(&self) -> impl Iterator<Item = &AllowEntry> {
        self.entries.iter()
    }

    /// The list of what both lists allow.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let pairs = self
            .entries
            .iter()
            .flat_map(|mine| other.entries.iter().map(move |theirs| mine.intersection(theirs)));
        let mut entries: Vec<AllowEntry> = Vec::new();
        for entry in pairs.flatten() {
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        Self { entries }
    }

    /// Looks up a host and port.
    #[must_use]
    pub fn lookup(&self, target: &Target) -> AllowListMatch {
        let mut ports: Vec<u16> = self
            .entries
            .iter()
            .filter(|entry| entry.matches_host(target.host()))
            .flat_map(AllowEntry::ports)
            .collect();
        if ports.contains(&target.port()) {
            return AllowListMatch::Listed;
        }
        ports.sort_unstable();
        ports.dedup();
        if ports.is_empty() { AllowListMatch::NotListed } else { AllowListMatch::OtherPorts(ports) }
    }
}

/// Parses entries that are separated by commas, with or without spaces. An empty text is an empty list.
///
/// ```
/// use conjure_egress::{AllowList, AllowListMatch, Target};
///
/// let list: AllowList = "pypi.org, *.pythonhosted.org, git.example.com:8443".parse()?;
/// assert_eq!(list.lookup(&Target::parse("files.pythonhosted.org:443")?), AllowListMatch::Listed);
/// assert_eq!(list.lookup(&Target::parse("pypi.org:22")?), AllowListMatch::OtherPorts(vec![80, 443]));
/// assert_eq!(list.lookup(&Target::parse("notpypi.org:443")?), AllowListMatch::NotListed);
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

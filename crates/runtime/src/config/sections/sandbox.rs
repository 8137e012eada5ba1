//! Settings of the sandbox: its kind, its resources and network, and the boundaries that it must enforce.

use std::str::FromStr;
#[cfg(feature = "docker")]
use std::sync::{Arc, OnceLock};

use conjure_egress::{AddressRange, AddressRangeError};
use conjure_sandbox::{Boundary, DiskLimit, Isolation, Limits, NetworkPolicy};
#[cfg(feature = "docker")]
use conjure_sandbox::{ContainerEngine, EngineAddress};
use serde::Deserialize;

/// The kind of sandbox that runs the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ExecutorKind {
    /// Namespaces created by the library itself, without a daemon and without root.
    #[default]
    Jail,
    /// A container of Docker Engine or Podman, from a configured image.
    Docker,
    /// A plain child process: **no isolation**, for trusted skills only.
    Local,
}

impl ExecutorKind {
    /// The name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Jail => "jail",
            Self::Docker => "docker",
            Self::Local => "local",
        }
    }
}

impl FromStr for ExecutorKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "jail" => Ok(Self::Jail),
            "docker" => Ok(Self::Docker),
            "local" => Ok(Self::Local),
            _ => Err(format!("there is no sandbox `{text}`; there are `jail`, `docker` and `local`")),
        }
    }
}

/// The hosts of the public package registries of Python and Node. `pip`, `uv`, `npm` and `npx` install from them.
pub const PACKAGE_REGISTRIES: [&str; 4] =
    ["registry.npmjs.org", "pypi.org", "files.pythonhosted.org", "registry.yarnpkg.com"];

/// Parses an address or a range of addresses.
pub(crate) fn parse_range(text: &str) -> Result<AddressRange, String> {
    text.parse().map_err(|error: AddressRangeError| error.to_string())
}

/// Parses a network policy: the word `none`, the word `full`, or the names of hosts. The first host may have the prefix
/// `limited:`.
///
/// ```
/// use conjure::config::parse_network;
/// use conjure::sandbox::NetworkPolicy;
///
/// let policy = parse_network("limited:pypi.org,files.pythonhosted.org".split(','))?;
/// assert!(matches!(policy, NetworkPolicy::Limited(hosts) if hosts.len() == 2));
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// If the words are not a valid combination. The text says what is valid.
pub fn parse_network<'t>(words: impl Iterator<Item = &'t str>) -> Result<NetworkPolicy, String> {
    let mut words: Vec<&str> = words.collect();
    if let Some(first) = words.first_mut()
        && let Some(host) = first.strip_prefix("limited:")
    {
        *first = host;
        if words == [""] {
            return Err("`limited:` is followed by names of hosts, separated by `,`".to_owned());
        }
    }
    match words.as_slice() {
        [] | ["none"] => Ok(NetworkPolicy::None),
        ["full"] => Ok(NetworkPolicy::Full),
        // These are Docker's names for networks. A sandbox has no network interface, so neither exists.
        ["bridge" | "host"] => {
            Err(format!("there is no network `{}`: use `full` to reach any public address", words[0]))
        }
        hosts if hosts.iter().any(|host| matches!(*host, "none" | "full")) => {
            Err("`none` and `full` stand alone; a list holds names of hosts".to_owned())
        }
        hosts => Ok(NetworkPolicy::Limited(hosts.iter().map(|host| (*host).to_owned()).collect())),
    }
}

/// Parses a number of bytes such as `512m`, `1GiB` or `65536`. All units are powers of 1,024.
///
/// # Errors
///
/// If the text is no such number, or exceeds 64 bits.
pub fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u32); 5] = [("b", 0), ("k", 10), ("m", 20), ("g", 30), ("t", 40)];
    let wrong = || format!("`{text}` is not a size, such as `512m` or `2g`");
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let unit = unit.trim_start();
    let shift = UNITS
        .iter()
        .find(|(name, shift)| {
            let rest = unit.strip_prefix(name);
            unit.is_empty() && *shift == 0
                || rest == Some("")
                || *shift > 0 && matches!(rest, Some("b" | "ib"))
        })
        .map(|(_, shift)| *shift)
        .ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Parses a number of processors.
pub(crate) fn parse_cpus(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a number of processors, such as `2` or `0.5`"))
}

/// Parses which party enforces the disk limit of workspaces.
pub(crate) fn parse_disk_limit(text: &str) -> Result<DiskLimit, String> {
    match text.trim() {
        "watched" => Ok(DiskLimit::Watched),
        "kernel" => Ok(DiskLimit::Kernel),
        _ => Err(format!("there is no limit of the disk `{text}`; there are `watched` and `kernel`")),
    }
}

/// Parses the names of boundaries that must be enforced.
pub(crate) fn parse_floor<'t>(words: impl Iterator<Item = &'t str>) -> Result<Isolation, String> {
    let mut floor = Isolation::NONE;
    for word in words {
        if word == "all" {
            floor = Isolation::FULL;
            continue;
        }
        let boundary = floor.boundary_mut(word).ok_or_else(|| {
            let known: Vec<&str> = Isolation::NONE.open().collect();
            format!("there is no boundary `{word}`; there are {}, and `all`", known.join(", "))
        })?;
        *boundary = Boundary::Enforced;
    }
    Ok(floor)
}

/// The resource limits, and the required boundaries. A limit that is set must be enforced.
pub(crate) fn limits(
    memory: Option<u64>,
    cpus: Option<f64>,
    floor: Isolation,
) -> Result<(Limits, Isolation), (&'static str, String)> {
    let (mut limits, mut floor) = (Limits::default(), floor);
    if let Some(bytes) = memory {
        limits = limits.with_memory(bytes).map_err(|error| ("memory", error.to_string()))?;
        floor.memory = Boundary::Enforced;
    }
    if let Some(cpus) = cpus {
        limits = limits.with_cpus(cpus).map_err(|error| ("cpus", error.to_string()))?;
        floor.processor = Boundary::Enforced;
    }
    Ok((limits, floor))
}

/// The container engine that the sessions of a configuration share. Clones share the engine.
///
/// State: the detected engine, and the admission gate of its container starts. Both are dropped with the last
/// configuration that shares them.
#[cfg(feature = "docker")]
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedEngine(Arc<OnceLock<ContainerEngine>>);

#[cfg(feature = "docker")]
impl SharedEngine {
    /// Returns the engine. The first call creates it with these addresses.
    pub(crate) fn get_or_create(&self, addresses: Vec<EngineAddress>) -> ContainerEngine {
        self.0.get_or_init(|| ContainerEngine::new(addresses)).clone()
    }
}

/// The engine is not a setting. So configurations with equal settings are equal, even if they have detected different
/// engines.
#[cfg(feature = "docker")]
impl PartialEq for SharedEngine {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_and_nothing_else_is_a_size() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65536),
            ("512m", 512 << 20),
            ("512MiB", 512 << 20),
            ("512 mb", 512 << 20),
            ("1g", 1 << 30),
            ("7B", 7),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "m", "-1", "1.5g", "1x", "1bb", "1bib", "99999999999999999999", "99999999999t", "１m"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_list_of_hosts_may_be_called_limited() {
        let parse = |text: &str| parse_network(text.split(','));
        let hosts = NetworkPolicy::Limited(vec!["a.example".to_owned(), "b.example".to_owned()]);
        assert_eq!(parse("limited:a.example,b.example"), Ok(hosts.clone()));
        assert_eq!(parse("a.example,b.example"), Ok(hosts));
        assert!(parse("limited:").is_err());
        assert!(parse("limited:a.example,full").unwrap_err().contains("stand alone"));
    }

    #[test]
    fn a_floor_is_made_of_names_and_grows_with_what_is_limited() {
        let floor = parse_floor(["memory", "network"].into_iter()).unwrap();
        assert_eq!((floor.memory, floor.network), (Boundary::Enforced, Boundary::Enforced));
        assert_eq!(floor.open().count(), Isolation::NONE.open().count() - 2);
        assert_eq!(parse_floor(["all"].into_iter()), Ok(Isolation::FULL));
        assert!(parse_floor(["mem"].into_iter()).unwrap_err().contains("there are filesystem, "));

        assert_eq!(parse_disk_limit("kernel"), Ok(DiskLimit::Kernel));
        assert!(parse_disk_limit("none").is_err());

        let (limits, floor) = limits(Some(64 << 20), None, Isolation::NONE).unwrap();
        assert_eq!(limits.memory(), 64 << 20);
        assert_eq!((floor.memory, floor.processor), (Boundary::Enforced, Boundary::Open));
    }
}

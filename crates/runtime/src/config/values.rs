//! How values in the configuration file are written: durations, sizes, networks and words.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use conjure_egress::AddressRange;
use conjure_sandbox::{DiskLimit, Isolation, NetworkPolicy};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::config::sections::sandbox::{
    parse_disk_limit, parse_floor, parse_network, parse_range, parse_size,
};

/// The longest duration of a setting: a year. With this limit, arithmetic on it never overflows.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Parses a number of seconds from a file or a variable.
pub(crate) fn parse_seconds(seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero() && *duration <= MAX_TIMEOUT)
        .ok_or_else(|| format!("{seconds} is not a number of seconds between 0 and a year"))
}

/// A text that `parse` reads.
pub(super) fn parsed_text<'de, D: Deserializer<'de>, T, E: Display>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, D::Error> {
    let text = Cow::<str>::deserialize(deserializer)?;
    parse(&text).map(Some).map_err(D::Error::custom)
}

/// A text that is not empty, without the white space around it.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    parsed_text(deserializer, |text| match text.trim() {
        "" => Err("it is empty"),
        text => Ok(text.to_owned()),
    })
}

/// A number of seconds, whole or fractional.
pub(super) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    parse_seconds(f64::deserialize(deserializer)?).map(Some).map_err(D::Error::custom)
}

/// A number of bytes, or a text such as `512m`.
pub(super) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a size such as \"512m\" or a number of bytes is needed")]
    enum Size {
        Bytes(u64),
        Text(String),
    }
    match Size::deserialize(deserializer)? {
        Size::Bytes(bytes) => Ok(Some(bytes)),
        Size::Text(text) => parse_size(&text).map(Some).map_err(D::Error::custom),
    }
}

/// The word `none` or `full`, or a list of hosts.
pub(super) fn network<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NetworkPolicy>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "`none`, `full` or a list of names of hosts is needed")]
    enum Network {
        Word(String),
        Hosts(Vec<String>),
    }
    let words = match Network::deserialize(deserializer)? {
        Network::Word(word) => vec![word],
        Network::Hosts(hosts) => hosts,
    };
    parse_network(words.iter().map(String::as_str)).map(Some).map_err(D::Error::custom)
}

/// Addresses and ranges of addresses.
pub(super) fn ranges<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<AddressRange>>, D::Error> {
    let ranges = Vec::<String>::deserialize(deserializer)?;
    ranges
        .iter()
        .map(|range| parse_range(range))
        .collect::<Result<_, _>>()
        .map(Some)
        .map_err(D::Error::custom)
}

/// The names of boundaries.
pub(super) fn floor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Isolation>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    parse_floor(names.iter().map(String::as_str)).map(Some).map_err(D::Error::custom)
}

/// Which party enforces the disk limit of workspaces.
pub(super) fn disk_limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DiskLimit>, D::Error> {
    parsed_text(deserializer, parse_disk_limit)
}

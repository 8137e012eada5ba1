//! Stores the sandbox flags with the session, so that a resumed session has no weaker isolation.

use std::collections::BTreeMap;

use conjure::Settings;
use conjure::config::{parse_network, parse_size};
use conjure::sandbox::NetworkPolicy;

use crate::cli::args::NewSessionArgs;
use crate::cli::cli_error::CliError;

const NETWORK: &str = "conjure.network";
const MEMORY: &str = "conjure.memory";
const CPUS: &str = "conjure.cpus";
const IMAGE: &str = "conjure.image";

/// The flags as metadata of a session.
pub(crate) fn sandbox_notes(args: &NewSessionArgs) -> BTreeMap<&'static str, String> {
    let network = args.network.as_ref().map(|network| match network {
        NetworkPolicy::None => "none".to_owned(),
        NetworkPolicy::Full => "full".to_owned(),
        NetworkPolicy::Limited(hosts) => hosts.join(","),
    });
    let said = [
        (NETWORK, network),
        (MEMORY, args.memory.map(|bytes| bytes.to_string())),
        (CPUS, args.cpus.map(|cpus| cpus.to_string())),
        (IMAGE, args.image.clone()),
    ];
    said.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The settings from a session's metadata.
pub(crate) fn settings_from_notes(notes: &BTreeMap<String, String>) -> Result<Settings, CliError> {
    let unreadable = |name: &str, value: &str| {
        CliError::internal(format!("the session's note `{name}` cannot be read: `{value}`"))
    };
    let read = |name: &'static str| notes.get(name).map(|value| (name, value.as_str()));
    let network = read(NETWORK)
        .map(|(name, value)| parse_network(value.split(',')).map_err(|_| unreadable(name, value)))
        .transpose()?;
    let memory = read(MEMORY)
        .map(|(name, value)| parse_size(value).map_err(|_| unreadable(name, value)))
        .transpose()?;
    let cpus =
        read(CPUS).map(|(name, value)| value.parse().map_err(|_| unreadable(name, value))).transpose()?;
    let image = notes.get(IMAGE).cloned();
    Ok(Settings { network, memory, cpus, image, ..Settings::default() })
}

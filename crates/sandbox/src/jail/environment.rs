//! The variables of commands in a jail. Of the host's variables, they include only the language and the time zone.

use std::collections::BTreeMap;
use std::path::Path;

use super::interpreters::{Installation, SYSTEM};
use super::user::{HOME, NAME};
use crate::settings::limits::Limits;

/// Variables with the number of threads that libraries start. Without them, libraries would use the number of
/// processors of the machine.
const THREADS: [&str; 7] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
    "GOMAXPROCS",
];

/// Returns the variables. `host` contains the host's variables that commands may see in every kind of sandbox.
/// `overrides` are the variables of the context, which take precedence.
pub(super) fn variables(
    host: &BTreeMap<String, String>,
    installations: &[Installation],
    limits: &Limits,
    overrides: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    // The system's directories come first, because the others exist only for programs that the system lacks.
    let elsewhere = installations.iter().filter_map(|found| found.programs.to_str());
    let path: Vec<&str> = SYSTEM.into_iter().chain(elsewhere).collect();
    let threads = limits.millicpus().div_ceil(1000).to_string();
    let mut variables: BTreeMap<String, String> = [
        ("HOME", HOME),
        ("LOGNAME", NAME),
        ("USER", NAME),
        ("SHELL", "/bin/bash"),
        ("TERM", "dumb"),
        ("LANG", "C.UTF-8"),
        ("PATH", &path.join(":")),
    ]
    .into_iter()
    .chain(THREADS.map(|name| (name, threads.as_str())))
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect();
    let shown = host.iter().filter(|(name, value)| is_shown(name, value));
    variables.extend(shown.map(|(name, value)| (name.clone(), value.clone())));
    variables.extend(overrides.clone());
    variables
}

/// The variables of a sandbox that has no programs of the host.
#[cfg(feature = "docker")]
pub(crate) fn default_variables(
    host: &BTreeMap<String, String>,
    limits: &Limits,
) -> BTreeMap<String, String> {
    variables(host, &[], limits, &BTreeMap::new())
}

/// Whether the host's variable has the same meaning in a jail.
fn is_shown(name: &str, value: &str) -> bool {
    match name {
        "LANG" => !value.is_empty(),
        // A path on the host may not exist in the jail.
        "TZ" => {
            !Path::new(value.trim_start_matches(':')).is_absolute() || value.contains("/usr/share/zoneinfo/")
        }
        name => name.starts_with("LC_"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_and_time_zone_are_the_hosts_and_the_rest_is_the_jails() {
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let host = pairs(&[
            ("HOME", "/root"),
            ("PATH", "/evil"),
            ("LANG", "de_DE.UTF-8"),
            ("LC_ALL", "C"),
            ("TZ", "/x"),
        ]);
        let limits = Limits::default().with_cpus(1.5).unwrap();
        let overrides = pairs(&[("LOGNAME", "me"), ("MINE", "1")]);
        let found = Installation { parts: Vec::new(), programs: "/opt/node/bin".into() };
        let seen = variables(&host, &[found], &limits, &overrides);
        assert_eq!(seen["HOME"], "/home/sandbox");
        assert_eq!(
            seen["PATH"],
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/node/bin"
        );
        assert_eq!((seen["LANG"].as_str(), seen["LC_ALL"].as_str()), ("de_DE.UTF-8", "C"));
        assert_eq!((seen["LOGNAME"].as_str(), seen["MINE"].as_str()), ("me", "1"));
        assert_eq!(seen["OMP_NUM_THREADS"], "2");
        assert!(!seen.contains_key("TZ"));
    }
}

//! The host variables that commands see: a small safe list without keys or tokens.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// The variables that commands need to find programs, their home, and the user's language and time zone.
const ALLOWED: [&str; 7] = ["PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "SHELL"];

/// The allowed variables of the host. Variables that are not UTF-8 are left out.
pub(crate) fn safe_env(host: impl IntoIterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    let mut safe: BTreeMap<_, _> = host
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| ALLOWED.contains(&name.as_str()) || name.starts_with("LC_"))
        .collect();
    // Commands have no terminal, whatever the host's variable says.
    safe.insert("TERM".to_owned(), "dumb".to_owned());
    safe.entry("PATH".to_owned())
        .or_insert_with(|| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn only_the_listed_variables_pass() {
        let host = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("TERM", "xterm"),
            ("ANTHROPIC_API_KEY", "secret"),
            ("LD_PRELOAD", "/evil.so"),
        ];
        let safe = safe_env(host.map(|(name, value)| (name.into(), value.into())));
        let names: Vec<_> = safe.keys().map(String::as_str).collect();
        assert_eq!(names, ["LC_ALL", "PATH", "TERM"]);
        assert_eq!(safe["TERM"], "dumb");
    }

    #[test]
    fn what_is_not_utf_8_is_left_out_and_a_path_is_always_there() {
        let safe = safe_env([("HOME".into(), OsString::from_vec(vec![0xff]))]);
        let names: Vec<_> = safe.keys().map(String::as_str).collect();
        assert_eq!(names, ["PATH", "TERM"]);
    }
}

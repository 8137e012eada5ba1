//! Checks the configuration of an environment before it is stored. Sessions apply all of it, so unsupported settings are refused.

use conjure_api::{EnvironmentConfig, Networking, Packages};
use conjure_egress::AllowEntry;
use conjure_runtime::PythonRequirement;

use crate::http::ApiError;

/// Refuses a configuration that this server cannot provide to a session.
///
/// # Errors
/// 400, with the field.
pub(super) fn check_config(config: &EnvironmentConfig) -> Result<(), ApiError> {
    let EnvironmentConfig::Cloud(cloud) = config else { return Ok(()) };
    python_packages(&cloud.packages)?;
    match &cloud.networking {
        Networking::Unrestricted => Ok(()),
        Networking::Limited(limited) => check_hosts(&limited.allowed_hosts),
    }
}

/// The Python packages of an environment.
///
/// # Errors
/// 400 for an invalid package, and for packages of other package managers.
pub(crate) fn python_packages(packages: &Packages) -> Result<Vec<PythonRequirement>, ApiError> {
    let is_other = |(manager, packages): &(&str, &[String])| *manager != "pip" && !packages.is_empty();
    if let Some((manager, _)) = packages.by_manager().into_iter().find(is_other) {
        return Err(ApiError::invalid(format!(
            "config.packages.{manager}: this server installs packages of `pip` alone; put these into the image of the sandboxes, or where the \
             server's jails have their programs from, and leave the list empty"
        )));
    }
    let read = |(place, text): (usize, &String)| {
        PythonRequirement::new(text)
            .map_err(|error| ApiError::invalid(format!("config.packages.pip.{place}: {error}")))
    };
    packages.pip.iter().enumerate().map(read).collect()
}

fn check_hosts(hosts: &[String]) -> Result<(), ApiError> {
    for (place, host) in hosts.iter().enumerate() {
        if host == "*" {
            return Err(ApiError::invalid(format!(
                "config.networking.allowed_hosts.{place}: `*` is no host; give `{{\"type\": \"unrestricted\"}}` as `networking` to limit nothing"
            )));
        }
        host.parse::<AllowEntry>().map_err(|error| {
            let message = format!(
                "config.networking.allowed_hosts.{place}: {error}; give the name of a host, such as `api.example.com`, `*.example.com` or `example.com:8443`"
            );
            ApiError::invalid(message)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use conjure_api::{EnvironmentCreate, RequestBody as _};
    use serde_json::json;

    use super::*;

    fn checked(hosts: &[&str]) -> Result<(), String> {
        let networking = json!({"type": "limited", "allowed_hosts": hosts});
        let body = json!({"name": "a", "config": {"type": "cloud", "networking": networking}});
        let create = EnvironmentCreate::from_json(body.to_string().as_bytes()).unwrap();
        check_config(&create.config).map_err(|error| error.to_string())
    }

    #[test]
    fn packages_are_those_of_pip() {
        let checked = |packages: serde_json::Value| {
            let body = json!({"name": "a", "config": {"type": "cloud", "packages": packages}});
            let create = EnvironmentCreate::from_json(body.to_string().as_bytes()).unwrap();
            check_config(&create.config).map_err(|error| error.to_string())
        };
        assert_eq!(checked(json!({"pip": ["pandas", "requests >= 2.31"], "apt": []})), Ok(()));
        let error = checked(json!({"pip": ["pandas", "--index-url=https://example.com"]})).unwrap_err();
        assert!(error.starts_with("config.packages.pip.1: "), "{error}");
        for manager in ["apt", "cargo", "gem", "go", "npm"] {
            let error = checked(json!({manager: ["a"]})).unwrap_err();
            assert!(error.starts_with(&format!("config.packages.{manager}: ")), "{error}");
        }
    }

    #[test]
    fn hosts_are_names_with_or_without_a_wildcard_in_front() {
        assert_eq!(checked(&[]), Ok(()));
        assert_eq!(
            checked(&[
                "example.com",
                "*.Example.com",
                "example.com:8443",
                "192.0.2.7",
                "B\u{fc}cher.example"
            ]),
            Ok(())
        );
        for wrong in [
            "https://example.com",
            "example.com/path",
            "*",
            "*.com.*",
            "a*.example.com",
            "a b",
            "example.com:0",
            "-a.example",
            "a..b",
            "a\nb",
            "user@example.com",
            "999.1.1.1",
        ] {
            let error = checked(&["example.com", wrong]).unwrap_err();
            assert!(error.starts_with("config.networking.allowed_hosts.1: "), "{wrong}: {error}");
        }
        assert!(checked(&["*"]).unwrap_err().contains("unrestricted"));
    }
}

//! Checks the configuration of an environment when it is stored: sessions get all of it, so what this server cannot do is refused.

use conjure_api::{EnvironmentConfig, Networking};
use conjure_egress::AllowEntry;

use crate::http::ApiError;

/// Refuses a configuration that no session could have.
///
/// # Errors
/// 400, with the field.
pub(super) fn check_config(config: &EnvironmentConfig) -> Result<(), ApiError> {
    let EnvironmentConfig::Cloud(cloud) = config else { return Ok(()) };
    match &cloud.networking {
        Networking::Unrestricted => Ok(()),
        Networking::Limited(limited) => check_hosts(&limited.allowed_hosts),
    }
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
    use conjure_api::EnvironmentCreate;
    use serde_json::json;

    use super::*;

    fn checked(hosts: &[&str]) -> Result<(), String> {
        let networking = json!({"type": "limited", "allowed_hosts": hosts});
        let body = json!({"name": "a", "config": {"type": "cloud", "networking": networking}});
        let create = EnvironmentCreate::from_json(body.to_string().as_bytes()).unwrap();
        check_config(&create.config).map_err(|error| error.to_string())
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

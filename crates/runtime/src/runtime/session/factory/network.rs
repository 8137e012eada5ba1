//! The network limit of one session. It narrows what the tenant and the configuration permit, and never widens it.
//!
//! State: none. The hosts are in the session's profile, so a resumed session has the same limit.

use conjure_conversation::SessionProfile;
use conjure_sandbox::{NetworkPolicy, SandboxError};

use crate::config::ExecutorKind;
use crate::context::SessionContext;
use crate::runtime::error::RuntimeError;
use crate::runtime::sandbox_kinds::SandboxKind;

/// The hosts to record for a session with this limit. `None` if the session has no limit of its own.
///
/// # Errors
/// If an entry of the list is no host.
pub(crate) fn recorded_hosts(network: &NetworkPolicy) -> Result<Option<Vec<String>>, RuntimeError> {
    network.policy().map_err(|error| refused(&error))?;
    Ok(match network {
        NetworkPolicy::Full => None,
        NetworkPolicy::None => Some(Vec::new()),
        NetworkPolicy::Limited(hosts) => Some(hosts.clone()),
    })
}

/// The limit of a session with this profile.
pub(crate) fn session_network(profile: &SessionProfile) -> NetworkPolicy {
    match &profile.allowed_hosts {
        None => NetworkPolicy::Full,
        Some(hosts) => NetworkPolicy::Limited(hosts.clone()),
    }
}

/// Adds the session's limit to the context. Isolation is never silently weakened, so the sandbox must be able to enforce
/// the limit.
pub(crate) fn limit_network(
    context: SessionContext,
    profile: &SessionProfile,
    kind: &SandboxKind<'_>,
) -> Result<SessionContext, RuntimeError> {
    let Some(hosts) = &profile.allowed_hosts else { return Ok(context) };
    if matches!(kind, SandboxKind::BuiltIn(ExecutorKind::Local)) {
        let reason = "the sandbox `local` isolates nothing; use `jail` or `docker`, or set no limit";
        return Err(RuntimeError::Network { reason: reason.to_owned() });
    }
    context.with_allowed_hosts(hosts).map_err(|error| refused(&error))
}

fn refused(error: &SandboxError) -> RuntimeError {
    RuntimeError::Network { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_recorded_and_read_again() {
        let list =
            |hosts: &[&str]| NetworkPolicy::Limited(hosts.iter().map(|&host| host.to_owned()).collect());
        for (network, again) in [
            (NetworkPolicy::Full, NetworkPolicy::Full),
            (NetworkPolicy::None, list(&[])),
            (list(&["a.example", "*.b.example:8443"]), list(&["a.example", "*.b.example:8443"])),
        ] {
            let allowed_hosts = recorded_hosts(&network).unwrap();
            let profile = SessionProfile { allowed_hosts, ..SessionProfile::default() };
            let stored = serde_json::to_string(&profile).unwrap();
            assert_eq!(stored.contains("allowed_hosts"), network != NetworkPolicy::Full, "{stored}");
            assert_eq!(session_network(&serde_json::from_str(&stored).unwrap()), again);
        }
        let error = recorded_hosts(&list(&["https://a.example/"])).unwrap_err();
        assert!(error.to_string().contains("`https://a.example/`"), "{error}");
    }
}

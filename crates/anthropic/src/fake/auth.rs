//! Authentication: the key and the API version, for both profiles.

use conjure_conversation::ApiErrorKind;
use conjure_model_http::fake::ReceivedRequest;

use super::refusal::Refusal;
use crate::config::ApiProfile;

/// Checks a request and returns its key and profile. `only` is the only accepted profile, if set.
pub(super) fn check(
    received: &ReceivedRequest,
    only: Option<ApiProfile>,
    is_accepted: impl Fn(&str) -> bool,
) -> Result<(&str, ApiProfile), Refusal> {
    let version = received
        .header("anthropic-version")
        .ok_or_else(|| Refusal::invalid("anthropic-version: header is required"))?;
    let profile =
        [ApiProfile::Beta, ApiProfile::Current].into_iter().find(|profile| profile.version() == version);
    let profile = profile.filter(|profile| only.is_none_or(|only| only == *profile)).ok_or_else(|| {
        Refusal::invalid(format!("anthropic-version: \"{version}\" is not a valid version"))
    })?;
    let refused = |message: &str| Refusal::new(ApiErrorKind::Authentication, message);
    let (key, missing, wrong) = match profile {
        ApiProfile::Beta => {
            (received.header("x-api-key"), "x-api-key header is required", "invalid x-api-key")
        }
        ApiProfile::Current => {
            let bearer = received.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
            (bearer, "authorization header is required", "invalid bearer token")
        }
    };
    let key = key.filter(|key| !key.is_empty()).ok_or_else(|| refused(missing))?;
    if is_accepted(key) { Ok((key, profile)) } else { Err(refused(wrong)) }
}

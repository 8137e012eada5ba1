//! Authentication: the key and the API version, for both profiles.

use conjure_conversation::ApiErrorKind;
use hyper::HeaderMap;

use super::refusal::Refusal;
use crate::config::ApiProfile;

/// The accepted keys and profiles.
#[derive(Debug, Clone, Default)]
pub(super) struct Auth {
    /// If empty, every key is accepted.
    pub(super) keys: Vec<String>,
    /// `None`: both profiles.
    pub(super) profile: Option<ApiProfile>,
}

impl Auth {
    /// Checks a request; returns its key and profile.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(String, ApiProfile), Refusal> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let version = text("anthropic-version")
            .ok_or_else(|| Refusal::invalid("anthropic-version: header is required"))?;
        let profile =
            [ApiProfile::Beta, ApiProfile::Current].into_iter().find(|profile| profile.version() == version);
        let profile =
            profile.filter(|profile| self.profile.is_none_or(|only| only == *profile)).ok_or_else(|| {
                Refusal::invalid(format!("anthropic-version: \"{version}\" is not a valid version"))
            })?;
        let refused = |message: &str| Refusal::new(ApiErrorKind::Authentication, message);
        let (key, missing, wrong) = match profile {
            ApiProfile::Beta => (text("x-api-key"), "x-api-key header is required", "invalid x-api-key"),
            ApiProfile::Current => {
                let bearer = text("authorization").and_then(|value| value.strip_prefix("Bearer "));
                (bearer, "authorization header is required", "invalid bearer token")
            }
        };
        let key = key.filter(|key| !key.is_empty()).ok_or_else(|| refused(missing))?;
        if !self.keys.is_empty() && !self.keys.iter().any(|known| known == key) {
            return Err(refused(wrong));
        }
        Ok((key.to_owned(), profile))
    }
}

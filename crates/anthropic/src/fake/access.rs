//! Who may ask: the key and the version, in both header profiles.

use conjure_conversation::ApiErrorKind;
use hyper::HeaderMap;

use super::refusal::Refusal;
use crate::config::Profile;

/// Which keys and profiles are let in.
#[derive(Debug, Clone, Default)]
pub(super) struct Access {
    /// Empty: every key that is one.
    pub(super) keys: Vec<String>,
    /// None: both.
    pub(super) profile: Option<Profile>,
}

impl Access {
    /// The key and the profile of a request that may come in.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(String, Profile), Refusal> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let version = text("anthropic-version")
            .ok_or_else(|| Refusal::invalid("anthropic-version: header is required"))?;
        let profile =
            [Profile::Beta, Profile::Current].into_iter().find(|profile| profile.version() == version);
        let profile =
            profile.filter(|profile| self.profile.is_none_or(|only| only == *profile)).ok_or_else(|| {
                Refusal::invalid(format!("anthropic-version: \"{version}\" is not a valid version"))
            })?;
        let refused = |message: &str| Refusal::new(ApiErrorKind::Authentication, message);
        let (key, missing, wrong) = match profile {
            Profile::Beta => (text("x-api-key"), "x-api-key header is required", "invalid x-api-key"),
            Profile::Current => {
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

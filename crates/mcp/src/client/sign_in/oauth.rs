//! Renews access tokens at a token endpoint (RFC 6749, section 6).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_base::{Clock as _, SystemClock, Timestamp};
use conjure_vault::{ClientAuth, OAuthRefresh, OAuthTokens};
use futures_util::StreamExt as _;
use reqwest::Url;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::client::transport::http_transport::checked_client;
use crate::config::AddressScope;

/// The maximum size of a token endpoint's response, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// The timeout of a token endpoint.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The maximum lifetime of an access token that is accepted: ten years.
const MAX_LIFETIME_SECONDS: u64 = 10 * 365 * 24 * 3_600;

/// Why an access token was not renewed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefreshError {
    /// The request failed.
    #[error("the token endpoint could not be asked: {0}")]
    Unreachable(String),
    /// The endpoint answered with an error.
    #[error("the token endpoint answered with status {status}{}", reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default())]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The error code, such as `invalid_grant`.
        reason: Option<String>,
        /// The media type of the response.
        content_type: String,
    },
}

/// The response of a token endpoint.
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: SecretText,
    #[serde(default, deserialize_with = "seconds")]
    expires_in: Option<u64>,
    refresh_token: Option<SecretText>,
    #[serde(default, deserialize_with = "scopes")]
    scope: Option<String>,
}

/// Parses scopes, separated by spaces. Some endpoints send a list. Any other value counts as unknown.
fn scopes<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => text,
        serde_json::Value::Array(scopes) => {
            scopes.iter().filter_map(|scope| scope.as_str()).collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    };
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

/// Parses a number of seconds. Some endpoints send a string or a fraction. Any other value counts as unknown.
fn seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    let number = match &value {
        serde_json::Value::String(text) => text.trim().parse::<f64>().ok(),
        other => other.as_f64(),
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is bounded just before")]
    let whole = |number: f64| number.clamp(0.0, MAX_LIFETIME_SECONDS as f64) as u64;
    Ok(number.filter(|number| number.is_finite()).map(whole))
}

/// A text that is never shown.
struct SecretText(SecretString);

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(SecretString::from(text)))
    }
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: String,
}

/// Requests the next access token, with one request.
///
/// # Errors
/// If the request fails, or the response has no token.
pub async fn refresh_tokens(
    refresh: &OAuthRefresh,
    addresses: AddressScope,
) -> Result<OAuthTokens, RefreshError> {
    let asked = ask(refresh, addresses);
    tokio::time::timeout(TIMEOUT, asked)
        .await
        .unwrap_or_else(|_| Err(RefreshError::Unreachable("it did not answer in time".to_owned())))
}

async fn ask(refresh: &OAuthRefresh, addresses: AddressScope) -> Result<OAuthTokens, RefreshError> {
    let url = Url::parse(&refresh.token_endpoint)
        .map_err(|error| RefreshError::Unreachable(format!("its address is no URL: {error}")))?;
    let client = checked_client(&url, addresses).await.map_err(RefreshError::Unreachable)?;
    let mut request = client
        .post(url)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(form(refresh));
    if let ClientAuth::Basic { client_secret } = &refresh.client_auth {
        request = request.header(AUTHORIZATION, basic(&refresh.client_id, client_secret)?);
    }
    let answer = request.send().await;
    let answer = answer.map_err(|error| {
        RefreshError::Unreachable(crate::client::connection::causes(&error.without_url()))
    })?;
    let status = answer.status();
    let content_type = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().to_owned();
    let refused =
        |reason: Option<String>| RefreshError::Refused { status: status.as_u16(), reason, content_type };
    let mut body = Vec::new();
    let mut stream = answer.bytes_stream();
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|error| RefreshError::Unreachable(error.without_url().to_string()))?;
        if body.len() + piece.len() > MAX_ANSWER_BYTES {
            return Err(refused(Some("its answer is too large".to_owned())));
        }
        body.extend_from_slice(&piece);
    }
    if !status.is_success() {
        let code = serde_json::from_slice::<ErrorAnswer>(&body).ok().map(|answer| answer.error);
        // An error code contains no secret. Other text of the response might, so it is not passed on.
        let is_code = |code: &String| code.len() <= 60 && code.bytes().all(|byte| byte.is_ascii_graphic());
        return Err(refused(code.filter(is_code)));
    }
    let Ok(answer) = serde_json::from_slice::<TokenAnswer>(&body) else {
        return Err(refused(Some("its answer has no access token".to_owned())));
    };
    Ok(tokens(refresh, answer))
}

/// The tokens of a sign-in. `None` if the response has none. A response without scopes grants the requested ones.
pub(in crate::client) fn first_tokens(
    answer: serde_json::Value,
    asked_scope: Option<String>,
    refresh: impl FnOnce(SecretString) -> OAuthRefresh,
) -> Option<OAuthTokens> {
    let answer: TokenAnswer = serde_json::from_value(answer).ok()?;
    let expires_at = answer.expires_in.map(end_of);
    let refresh = answer.refresh_token.map(|SecretText(token)| refresh(token));
    let scope = answer.scope.or(asked_scope);
    Some(OAuthTokens { access_token: answer.access_token.0, expires_at, refresh, scope })
}

/// The expiry time of a token that is valid for this many seconds.
fn end_of(seconds: u64) -> Timestamp {
    let millis = seconds.min(MAX_LIFETIME_SECONDS).saturating_mul(1_000);
    Timestamp::from_millis(SystemClock.timestamp().millis().saturating_add(millis))
}

/// The tokens of a response. Values that are missing in the response are taken from `refresh`.
fn tokens(refresh: &OAuthRefresh, answer: TokenAnswer) -> OAuthTokens {
    let expires_at = answer.expires_in.map(end_of);
    let mut refresh = refresh.clone();
    if let Some(SecretText(token)) = answer.refresh_token {
        refresh.refresh_token = token;
    }
    let (access_token, scope) = (answer.access_token.0, answer.scope);
    OAuthTokens { access_token, expires_at, refresh: Some(refresh), scope }
}

/// The request's body, as a form.
fn form(refresh: &OAuthRefresh) -> String {
    let mut pairs = vec![
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh.refresh_token.expose_secret()),
        ("client_id", &refresh.client_id),
    ];
    if let ClientAuth::Post { client_secret } = &refresh.client_auth {
        pairs.push(("client_secret", client_secret.expose_secret()));
    }
    pairs.extend(refresh.resource.as_deref().map(|resource| ("resource", resource)));
    pairs.extend(refresh.scope.as_deref().map(|scope| ("scope", scope)));
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// The header of HTTP Basic authentication. Both parts are form-encoded first.
fn basic(client: &str, secret: &SecretString) -> Result<HeaderValue, RefreshError> {
    let encode = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let credentials = STANDARD.encode(format!("{}:{}", encode(client), encode(secret.expose_secret())));
    let mut header = HeaderValue::try_from(format!("Basic {credentials}"))
        .map_err(|error| RefreshError::Unreachable(error.to_string()))?;
    header.set_sensitive(true);
    Ok(header)
}

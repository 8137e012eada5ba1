//! [`CredentialSecret`]: the token that a server gets, and how it is refreshed.

use conjure_base::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The secrets of a credential.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CredentialSecret {
    /// A fixed token.
    Bearer {
        /// The token.
        #[serde(with = "secret_text")]
        token: SecretString,
    },
    /// OAuth tokens.
    OAuth(OAuthTokens),
}

/// An OAuth access token, and how to get the next one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OAuthTokens {
    /// The token that the server gets.
    #[serde(with = "secret_text")]
    pub access_token: SecretString,
    /// When the access token expires, if known.
    pub expires_at: Option<Timestamp>,
    /// How to get the next access token; `None` if there is no way.
    pub refresh: Option<OAuthRefresh>,
    /// The permitted scope, separated by spaces, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// How to refresh an access token (RFC 6749, section 6).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OAuthRefresh {
    /// The id of the client that the tokens belong to.
    pub client_id: String,
    /// The refresh token, which is exchanged for a new access token.
    #[serde(with = "secret_text")]
    pub refresh_token: SecretString,
    /// The URL of the token endpoint.
    pub token_endpoint: String,
    /// How the client authenticates at the token endpoint.
    pub client_auth: ClientAuth,
    /// The resource that the token is for (RFC 8707).
    pub resource: Option<String>,
    /// The requested scope.
    pub scope: Option<String>,
}

/// How a client authenticates at a token endpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientAuth {
    /// With its id only.
    None,
    /// With HTTP Basic authentication.
    Basic {
        /// The client secret.
        #[serde(with = "secret_text")]
        client_secret: SecretString,
    },
    /// With its secret in the body.
    Post {
        /// The client secret.
        #[serde(with = "secret_text")]
        client_secret: SecretString,
    },
}

impl CredentialSecret {
    /// The bearer token that the server gets.
    #[must_use]
    pub const fn token(&self) -> &SecretString {
        match self {
            Self::Bearer { token } => token,
            Self::OAuth(tokens) => &tokens.access_token,
        }
    }

    /// When the token expires, if known.
    #[must_use]
    pub const fn expires_at(&self) -> Option<Timestamp> {
        match self {
            Self::Bearer { .. } => None,
            Self::OAuth(tokens) => tokens.expires_at,
        }
    }
}

/// Serializes a secret as text. It is only used for content that is sealed next.
mod secret_text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
        secret.expose_secret().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
        String::deserialize(deserializer).map(SecretString::from)
    }
}

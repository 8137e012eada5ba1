//! [`CredentialSecret`]: what a server is sent, and how it is renewed.

use conjure_base::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The secrets of a credential.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CredentialSecret {
    /// A token that stays as it is.
    Bearer {
        /// The token.
        #[serde(with = "secret_text")]
        token: SecretString,
    },
    /// Tokens of OAuth.
    OAuth(OAuthTokens),
}

/// An access token, and how the next one is got.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OAuthTokens {
    /// What the server is sent.
    #[serde(with = "secret_text")]
    pub access_token: SecretString,
    /// When it ends, if that is known.
    pub expires_at: Option<Timestamp>,
    /// How the next one is got; `None`: not at all.
    pub refresh: Option<OAuthRefresh>,
    /// What it permits, separated by spaces, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// How an access token is renewed (RFC 6749, section 6).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OAuthRefresh {
    /// The client that the token belongs to.
    pub client_id: String,
    /// What is given for a new access token.
    #[serde(with = "secret_text")]
    pub refresh_token: SecretString,
    /// Where it is given.
    pub token_endpoint: String,
    /// How the client says who it is.
    pub client_auth: ClientAuth,
    /// The resource that the token is for (RFC 8707).
    pub resource: Option<String>,
    /// The scope that is asked for.
    pub scope: Option<String>,
}

/// How a client says to a token endpoint who it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientAuth {
    /// By its id alone.
    None,
    /// By HTTP Basic authentication.
    Basic {
        /// The client's secret.
        #[serde(with = "secret_text")]
        client_secret: SecretString,
    },
    /// In the body.
    Post {
        /// The client's secret.
        #[serde(with = "secret_text")]
        client_secret: SecretString,
    },
}

impl CredentialSecret {
    /// What the server is sent as its bearer token.
    #[must_use]
    pub const fn token(&self) -> &SecretString {
        match self {
            Self::Bearer { token } => token,
            Self::OAuth(tokens) => &tokens.access_token,
        }
    }

    /// When the token ends, if that is known.
    #[must_use]
    pub const fn expires_at(&self) -> Option<Timestamp> {
        match self {
            Self::Bearer { .. } => None,
            Self::OAuth(tokens) => tokens.expires_at,
        }
    }
}

/// A secret as text, in what is about to be sealed.
mod secret_text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
        secret.expose_secret().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
        String::deserialize(deserializer).map(SecretString::from)
    }
}

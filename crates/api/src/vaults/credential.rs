//! Credentials in a vault. Clients send them with secrets and read them without.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::agents::mcp_server::read_http_url;
use crate::common::input::{Input, ObjectInput, Patch};
use crate::common::metadata::{self, Metadata, MetadataPatch};
use crate::vaults::vault::MAX_DISPLAY_NAME;
use crate::{CredentialId, RequestError, Time, VaultId};

/// The longest secret, in characters.
const MAX_SECRET: usize = 16_384;
const MAX_CLIENT_ID: usize = 2_048;
const MAX_SCOPE: usize = 2_048;

/// A credential in the form that clients read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "vault_credential")]
pub struct Credential {
    /// The id of the credential.
    pub id: CredentialId,
    /// When it was archived and its secrets were deleted; null while it is in use.
    pub archived_at: Option<Time>,
    /// How it authenticates.
    pub auth: CredentialAuth,
    /// When it was created.
    pub created_at: Time,
    /// A display name.
    pub display_name: Option<String>,
    /// Key-value pairs of the client.
    pub metadata: Metadata,
    /// When it was last changed.
    pub updated_at: Time,
    /// The vault of the credential.
    pub vault_id: VaultId,
}

/// How a credential authenticates, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CredentialAuth {
    /// By a fixed bearer token.
    StaticBearer {
        /// The URL of the MCP server that it is for.
        mcp_server_url: String,
    },
    /// By OAuth tokens.
    McpOauth {
        /// The URL of the MCP server that they are for.
        mcp_server_url: String,
        /// When the access token expires; null if unknown.
        expires_at: Option<Time>,
        /// How the access token is refreshed; null if it is not.
        refresh: Option<OAuthRefresh>,
    },
}

/// How an access token is refreshed, without the secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OAuthRefresh {
    /// The id of the client that the token belongs to.
    pub client_id: String,
    /// The resource that the token is for.
    pub resource: Option<String>,
    /// The requested scope.
    pub scope: Option<String>,
    /// The URL of the token endpoint.
    pub token_endpoint: String,
    /// How the client authenticates at the token endpoint.
    pub token_endpoint_auth: TokenEndpointAuth,
}

/// How a client authenticates at a token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of OAuth")]
pub enum TokenEndpointAuth {
    None,
    ClientSecretBasic,
    ClientSecretPost,
}

/// A secret that a client sent. `Debug` does not show it.
#[derive(Clone)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// The body of `POST /v1/vaults/{id}/credentials`.
#[derive(Debug, Clone)]
pub struct CredentialCreate {
    /// How it authenticates.
    pub auth: CredentialAuth,
    /// Its secrets.
    pub secrets: CredentialSecrets,
    /// A display name.
    pub display_name: Option<String>,
    /// Key-value pairs of the client.
    pub metadata: Metadata,
}

/// The secrets of a new credential.
#[derive(Debug, Clone)]
pub struct CredentialSecrets {
    /// The token that the server gets.
    pub token: Secret,
    /// The refresh token.
    pub refresh_token: Option<Secret>,
    /// The client secret.
    pub client_secret: Option<Secret>,
}

/// The body of `POST /v1/vaults/{id}/credentials/{id}`. Absent fields keep their values.
#[derive(Debug, Clone)]
pub struct CredentialUpdate {
    /// The changes of how it authenticates.
    pub auth: Option<CredentialAuthUpdate>,
    /// A display name.
    pub display_name: Patch<String>,
    /// The keys to set or to remove.
    pub metadata: MetadataPatch,
}

/// Changes of how a credential authenticates. Its kind cannot change.
#[derive(Debug, Clone)]
pub enum CredentialAuthUpdate {
    /// For a fixed bearer token.
    StaticBearer {
        /// The new token.
        token: Option<Secret>,
    },
    /// For OAuth tokens.
    McpOauth {
        /// The new access token.
        access_token: Option<Secret>,
        /// When the access token expires.
        expires_at: Patch<Time>,
        /// The changes of how it is refreshed.
        refresh: Option<RefreshUpdate>,
    },
}

/// Changes of how an access token is refreshed.
#[derive(Debug, Clone)]
pub struct RefreshUpdate {
    /// The new refresh token.
    pub refresh_token: Option<Secret>,
    /// The new scope. An empty text removes it.
    pub scope: Option<String>,
    /// The new client secret.
    pub client_secret: Option<Secret>,
}

/// The result of testing a credential at its server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "vault_credential_validation")]
pub struct CredentialValidation {
    /// The id of the credential.
    pub credential_id: CredentialId,
    /// Whether the credential has a refresh token.
    pub has_refresh_token: bool,
    /// The step that failed; null if none did.
    pub mcp_probe: Option<McpProbe>,
    /// The result of refreshing the token; null if that was not tried.
    pub refresh: Option<RefreshProbe>,
    /// The result of the test.
    pub status: ValidationStatus,
    /// When the test was made.
    pub validated_at: Time,
    /// The vault of the credential.
    pub vault_id: VaultId,
}

/// The result of testing a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ValidationStatus {
    /// The server accepts it.
    Valid,
    /// The server does not accept it.
    Invalid,
    /// The server could not be reached.
    Unknown,
}

/// The step at which the test failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpProbe {
    /// Always null: the server's response is not stored.
    pub http_response: Option<String>,
    /// The MCP method.
    pub method: String,
}

/// The result of refreshing a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefreshProbe {
    /// Always null: the endpoint's response is not stored.
    pub http_response: Option<String>,
    /// The status of the attempt.
    pub status: RefreshStatus,
}

/// The status of an attempt to refresh a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RefreshStatus {
    /// The endpoint returned a new token.
    Succeeded,
    /// The endpoint refused.
    Failed,
    /// The endpoint could not be reached.
    ConnectError,
    /// There is no refresh token.
    NoRefreshToken,
}

#[derive(Clone, Copy)]
enum Kind {
    StaticBearer,
    McpOauth,
    EnvironmentVariable,
}

const KINDS: [(&str, Kind); 3] = [
    ("static_bearer", Kind::StaticBearer),
    ("mcp_oauth", Kind::McpOauth),
    ("environment_variable", Kind::EnvironmentVariable),
];

fn no_variables(path: String) -> RequestError {
    RequestError::unsupported(path, "credentials of the type `environment_variable`")
}

impl CredentialAuth {
    /// The URL of the MCP server that the credential is for.
    #[must_use]
    pub fn mcp_server_url(&self) -> &str {
        match self {
            Self::StaticBearer { mcp_server_url } | Self::McpOauth { mcp_server_url, .. } => mcp_server_url,
        }
    }
}

impl CredentialCreate {
    /// Reads the body of a request. `now` is the current time; a token must expire later.
    ///
    /// # Errors
    /// If the body is not a valid new credential. The error says where the fault is and how to mend it. It never contains a secret.
    pub fn from_json(body: &[u8], now: Time) -> Result<Self, RequestError> {
        let mut object = Input::body(body)?.object()?;
        let auth = object.required("auth")?;
        let path = auth.path().to_owned();
        let mut fields = auth.object()?;
        let kind = fields.kind(&KINDS)?;
        let (auth, secrets) = match kind {
            Kind::StaticBearer => {
                let token = read_secret(&fields.required("token")?)?;
                let mcp_server_url = read_http_url(&fields.required("mcp_server_url")?)?;
                (CredentialAuth::StaticBearer { mcp_server_url }, secrets(token))
            }
            Kind::McpOauth => read_oauth(&mut fields, now)?,
            Kind::EnvironmentVariable => return Err(no_variables(path)),
        };
        fields.finish()?;
        let create = Self {
            auth,
            secrets,
            display_name: read_display_name(&mut object)?,
            metadata: metadata::read(&mut object)?,
        };
        object.finish()?;
        Ok(create)
    }
}

const fn secrets(token: Secret) -> CredentialSecrets {
    CredentialSecrets { token, refresh_token: None, client_secret: None }
}

fn read_oauth(
    fields: &mut ObjectInput<'_>,
    now: Time,
) -> Result<(CredentialAuth, CredentialSecrets), RequestError> {
    let mut secrets = secrets(read_secret(&fields.required("access_token")?)?);
    let mcp_server_url = read_http_url(&fields.required("mcp_server_url")?)?;
    let expires_at = fields.optional("expires_at").map(|time| read_end(&time, now)).transpose()?;
    let refresh = match fields.optional("refresh") {
        None => None,
        Some(input) => {
            let mut fields = input.object()?;
            secrets.refresh_token = Some(read_secret(&fields.required("refresh_token")?)?);
            let mut auth = fields.required("token_endpoint_auth")?.object()?;
            let token_endpoint_auth = auth.kind(&[
                ("none", TokenEndpointAuth::None),
                ("client_secret_basic", TokenEndpointAuth::ClientSecretBasic),
                ("client_secret_post", TokenEndpointAuth::ClientSecretPost),
            ])?;
            if token_endpoint_auth != TokenEndpointAuth::None {
                secrets.client_secret = Some(read_secret(&auth.required("client_secret")?)?);
            }
            auth.finish()?;
            let optional = |input: Option<Input<'_>>| input.map(|text| text.text(0..=MAX_SCOPE)).transpose();
            let refresh = OAuthRefresh {
                client_id: fields.required("client_id")?.text(1..=MAX_CLIENT_ID)?,
                resource: optional(fields.optional("resource"))?.filter(|text| !text.is_empty()),
                scope: optional(fields.optional("scope"))?.filter(|text| !text.is_empty()),
                token_endpoint: read_http_url(&fields.required("token_endpoint")?)?,
                token_endpoint_auth,
            };
            fields.finish()?;
            Some(refresh)
        }
    };
    Ok((CredentialAuth::McpOauth { mcp_server_url, expires_at, refresh }, secrets))
}

impl CredentialUpdate {
    /// Reads the body of a request. `now` is the current time; a token must expire later.
    ///
    /// # Errors
    /// If the body is not a valid update of a credential. The error says where the fault is and how to mend it. It never contains a secret.
    pub fn from_json(body: &[u8], now: Time) -> Result<Self, RequestError> {
        let mut object = Input::body(body)?.object()?;
        let update = Self {
            auth: object.optional("auth").map(|auth| read_auth_update(auth, now)).transpose()?,
            display_name: object.patch("display_name", |name| name.text(1..=MAX_DISPLAY_NAME))?,
            metadata: metadata::read_patch(&mut object)?,
        };
        object.finish()?;
        Ok(update)
    }
}

fn read_auth_update(input: Input<'_>, now: Time) -> Result<CredentialAuthUpdate, RequestError> {
    let path = input.path().to_owned();
    let mut fields = input.object()?;
    let kind = fields.kind(&KINDS)?;
    let secret = |input: Option<Input<'_>>| -> Result<Option<Secret>, RequestError> {
        input.map(|secret| read_secret(&secret)).transpose()
    };
    let update = match kind {
        Kind::StaticBearer => CredentialAuthUpdate::StaticBearer { token: secret(fields.optional("token"))? },
        Kind::McpOauth => CredentialAuthUpdate::McpOauth {
            access_token: secret(fields.optional("access_token"))?,
            expires_at: fields.patch("expires_at", |time| read_end(&time, now))?,
            refresh: match fields.optional("refresh") {
                None => None,
                Some(input) => {
                    let mut fields = input.object()?;
                    let mut update = RefreshUpdate {
                        refresh_token: secret(fields.optional("refresh_token"))?,
                        scope: fields.optional("scope").map(|scope| scope.text(0..=MAX_SCOPE)).transpose()?,
                        client_secret: None,
                    };
                    if let Some(auth) = fields.optional("token_endpoint_auth") {
                        let mut auth = auth.object()?;
                        // The value is only checked, because the kind cannot change.
                        auth.kind(&[("client_secret_basic", ()), ("client_secret_post", ())])?;
                        update.client_secret = secret(auth.optional("client_secret"))?;
                        auth.finish()?;
                    }
                    fields.finish()?;
                    Some(update)
                }
            },
        },
        Kind::EnvironmentVariable => return Err(no_variables(path)),
    };
    fields.finish()?;
    Ok(update)
}

fn read_display_name(object: &mut ObjectInput<'_>) -> Result<Option<String>, RequestError> {
    let name = object.optional("display_name").map(|name| name.text(0..=MAX_DISPLAY_NAME)).transpose()?;
    Ok(name.filter(|name| !name.is_empty()))
}

/// Reads a secret that can be sent in a header.
fn read_secret(input: &Input<'_>) -> Result<Secret, RequestError> {
    let text = input.text(1..=MAX_SECRET)?;
    if text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
        return Ok(Secret(text));
    }
    Err(input.error(
        "the secret has line breaks or other characters that are not allowed in a header; give it exactly as it was issued",
    ))
}

/// Reads when a token expires, which must be in the future.
fn read_end(input: &Input<'_>, now: Time) -> Result<Time, RequestError> {
    let text = input.text(1..=64)?;
    let time: Time = text.parse().map_err(|error: crate::TimeError| input.error(error.to_string()))?;
    if time.0 > now.0 {
        return Ok(time);
    }
    Err(input.error("the time has passed; give a token that is still valid, or leave the field out"))
}

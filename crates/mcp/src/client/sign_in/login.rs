//! [`Login`]: a user signs in at a server with a browser (OAuth 2.1 with PKCE), and the client gets the tokens.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use conjure_vault::{ClientAuth, OAuthRefresh, OAuthTokens};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use rmcp::model::ProtocolVersion;
use rmcp::transport::auth::{
    AuthorizationManager, AuthorizationMetadata, OAuthClientConfig, OAuthHttpClient, OAuthHttpClientFuture,
    OAuthHttpRequest, OAuthTokenResponse,
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::oauth::first_tokens;
use crate::client::transport::http_transport::checked_client;
use crate::config::AddressScope;

/// The maximum size of a response of an authorization server, in bytes.
const MAX_ANSWER_BYTES: usize = 256 << 10;

/// The timeout of one request to an authorization server.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// The maximum size of the head of a browser's request, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// The timeout of one request of a browser.
const HEAD_TIME: Duration = Duration::from_secs(20);

/// The path of the redirect URI.
const CALLBACK: &str = "/callback";

/// The options of a sign-in.
#[derive(Debug, Clone, Default)]
pub struct LoginOptions {
    /// The client's id at the authorization server, or the URL of its metadata document. `None`: the client registers itself.
    pub client_id: Option<String>,
    /// The client's secret.
    pub client_secret: Option<SecretString>,
    /// The scopes to request. If this is empty, the scopes that the server names are requested.
    pub scopes: Vec<String>,
    /// The scopes of an earlier sign-in's token. If `scopes` is not empty, these are requested too.
    pub former_scopes: Vec<String>,
    /// The local port of the redirect URI. 0: any free port.
    pub port: u16,
}

/// Why the sign-in failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoginError(String);

/// A sign-in in progress. The user opens its URL in a browser.
pub struct Login {
    manager: AuthorizationManager,
    metadata: AuthorizationMetadata,
    client: OAuthClientConfig,
    resource: String,
    /// The requested scopes, separated by spaces.
    scope: Option<String>,
    authorization_url: String,
    /// The `state` parameter that the browser's callback must contain.
    state: String,
    listener: TcpListener,
    address: SocketAddr,
}

impl Login {
    /// Discovers the authorization server of the MCP server at `url`. Registers this client there unless it has an id.
    ///
    /// # Errors
    /// The step that failed.
    pub async fn start(url: &str, options: LoginOptions) -> Result<Self, LoginError> {
        let base = Url::parse(url).map_err(|error| LoginError(format!("its address is no URL: {error}")))?;
        // A private server may name private addresses; a public server may not.
        let addresses = scope_of(&base);
        let http = Arc::new(CheckedHttp { addresses });
        let failed = |step: &str, error: &dyn std::error::Error| LoginError(format!("{step}: {}", error));
        let mut manager = AuthorizationManager::new_with_oauth_http_client(base.clone(), http)
            .await
            .map_err(|error| failed("it cannot be asked where people sign in", &error))?;
        let challenge = challenge(&base, addresses).await;
        let found = manager
            .resolve_metadata_from_challenge(challenge.as_deref())
            .await
            .map_err(|error| failed("it does not say where people sign in", &error))?;
        let metadata = found.metadata;
        manager.set_metadata(metadata.clone());
        let listener = TcpListener::bind(("127.0.0.1", options.port))
            .await
            .map_err(|error| LoginError(format!("the port {} is not free: {error}", options.port)))?;
        let address = listener.local_addr().map_err(|error| LoginError(error.to_string()))?;
        let redirect = format!("http://{address}{CALLBACK}");
        let scopes = match options.scopes.is_empty() {
            true => manager.select_initial_scopes(&[]).await,
            false => all_scopes(&options.former_scopes, &options.scopes),
        };
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let client = match &options.client_id {
            Some(id) => {
                let client = OAuthClientConfig::new(id, &redirect)
                    .with_scopes(scopes.iter().map(|scope| (*scope).to_owned()).collect());
                let client = match &options.client_secret {
                    Some(secret) => client.with_client_secret(secret.expose_secret()),
                    None => client,
                };
                manager
                    .configure_client(client.clone())
                    .map_err(|error| failed("this client cannot be used there", &error))?;
                client
            }
            None => manager.register_client("Conjure", &redirect, &scopes).await.map_err(|error| {
                failed("it does not let clients register themselves; give `--client-id`", &error)
            })?,
        };
        let authorization_url = manager
            .get_authorization_url(&scopes)
            .await
            .map_err(|error| failed("the authorization URL could not be created", &error))?;
        let asked = Url::parse(&authorization_url).map_err(|error| LoginError(error.to_string()))?;
        let state = parameter(&asked, "state");
        let state = state.ok_or_else(|| LoginError("the sign-in has no state".to_owned()))?;
        // Tokens are renewed for the same resource.
        let scope = parameter(&asked, "scope");
        let resource = parameter(&asked, "resource").unwrap_or_else(|| base.to_string());
        Ok(Self { manager, metadata, client, resource, scope, authorization_url, state, listener, address })
    }

    /// The URL that the user opens in a browser on this machine.
    #[must_use]
    pub fn authorization_url(&self) -> &str {
        &self.authorization_url
    }

    /// Waits until the user has signed in, and requests the tokens. It has no timeout.
    ///
    /// # Errors
    /// If the user or the server refuses.
    pub async fn finish(self) -> Result<OAuthTokens, LoginError> {
        let callback = self.callback().await?;
        let parameter = |name: &str| parameter(&callback, name).unwrap_or_default();
        let issuer = Some(parameter("iss")).filter(|issuer| !issuer.is_empty());
        let answer = self
            .manager
            .exchange_code_for_token_with_issuer(&parameter("code"), &self.state, issuer.as_deref())
            .await;
        let answer = answer.map_err(|error| LoginError(format!("the sign-in was not accepted: {error}")))?;
        self.tokens(&answer)
    }

    /// Waits for the URL with which the browser returns from the sign-in.
    async fn callback(&self) -> Result<Url, LoginError> {
        let mut visits = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => {
                    if let Ok((stream, _)) = accepted {
                        visits.push(tokio::time::timeout(HEAD_TIME, self.visit(stream)));
                    }
                }
                Some(visit) = visits.next() => {
                    if let Ok(Some(callback)) = visit {
                        return callback;
                    }
                }
            }
        }
    }

    /// Answers one request of a browser. Returns the callback URL, or the error that the server put into it. `None` for any other request.
    async fn visit(&self, mut stream: TcpStream) -> Option<Result<Url, LoginError>> {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            if head.len() > MAX_HEAD_BYTES || stream.read_buf(&mut head).await.ok()? == 0 {
                return None;
            }
        }
        let head = String::from_utf8_lossy(&head);
        let target = head.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
        let url = Url::parse(&format!("http://{}{target}", self.address)).ok();
        let ours = url.filter(|url| {
            url.path() == CALLBACK && parameter(url, "state").is_some_and(|state| state == self.state)
        });
        let Some(url) = ours else {
            reply(&mut stream, "404 Not Found", "There is nothing here.").await;
            return None;
        };
        if let Some(error) = parameter(&url, "error") {
            reply(&mut stream, "200 OK", "Nobody was signed in. You can close this window.").await;
            let error = conjure_base::text::truncate(&error, 100).escape_debug().to_string();
            return Some(Err(LoginError(format!("the server refused the sign-in: {error}"))));
        }
        reply(&mut stream, "200 OK", "You are signed in. You can close this window.").await;
        Some(Ok(url))
    }

    /// How the client authenticates: not at all without a secret, and otherwise with HTTP Basic. If the server supports only
    /// `client_secret_post`, the secret is sent in the body. The first tokens were requested in the same way.
    fn client_auth(&self) -> ClientAuth {
        let Some(secret) = &self.client.client_secret else { return ClientAuth::None };
        let client_secret = SecretString::from(secret.as_str());
        let methods = self.metadata.additional_fields.get("token_endpoint_auth_methods_supported");
        let takes = |method: &str| {
            let methods = methods.and_then(serde_json::Value::as_array);
            methods.is_some_and(|methods| methods.iter().any(|found| found == method))
        };
        match takes("client_secret_post") && !takes("client_secret_basic") {
            true => ClientAuth::Post { client_secret },
            false => ClientAuth::Basic { client_secret },
        }
    }

    /// The tokens of a response, with the data for renewing them.
    fn tokens(&self, answer: &OAuthTokenResponse) -> Result<OAuthTokens, LoginError> {
        let json = serde_json::to_value(answer).map_err(|error| LoginError(error.to_string()))?;
        let refresh = |refresh_token: SecretString| OAuthRefresh {
            client_id: self.client.client_id.clone(),
            refresh_token,
            token_endpoint: self.metadata.token_endpoint.clone(),
            client_auth: self.client_auth(),
            resource: Some(self.resource.clone()),
            scope: None,
        };
        first_tokens(json, self.scope.clone(), refresh)
            .ok_or_else(|| LoginError("the server gave no access token".to_owned()))
    }
}

/// Sends `server/discover` without a token, and returns the server's `WWW-Authenticate` header. The header may name the authorization
/// server and the scopes. `None` if it names neither.
async fn challenge(url: &Url, addresses: AddressScope) -> Option<String> {
    const METHOD: &str = "server/discover";
    let version = ProtocolVersion::V_2026_07_28.as_str().to_owned();
    let client = serde_json::json!({"name": "conjure", "version": env!("CARGO_PKG_VERSION")});
    let message = serde_json::json!({
        "jsonrpc": "2.0",
        "id": 0,
        "method": METHOD,
        "params": {"_meta": {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": client,
            "io.modelcontextprotocol/clientCapabilities": {},
        }},
    });
    let request = checked_client(url, addresses)
        .await
        .ok()?
        .post(url.clone())
        .header(ACCEPT, "application/json, text/event-stream")
        .header(CONTENT_TYPE, "application/json")
        .header("MCP-Protocol-Version", version)
        .header("Mcp-Method", METHOD)
        .body(message.to_string())
        .timeout(ANSWER_TIME);
    // If the server cannot be reached, the next request reports the error.
    let answer = request.send().await.ok()?;
    if answer.status() != reqwest::StatusCode::UNAUTHORIZED {
        return None;
    }
    let challenges = answer.headers().get_all(WWW_AUTHENTICATE).iter();
    let challenges: Vec<&str> = challenges.filter_map(|value| value.to_str().ok()).collect();
    let with = |key: &str| challenges.iter().find(|text| text.to_ascii_lowercase().contains(key));
    with("resource_metadata=").or_else(|| with("scope=")).map(|text| (*text).to_owned())
}

/// The scopes of both lists, without duplicates.
fn all_scopes(former: &[String], further: &[String]) -> Vec<String> {
    let further = further.iter().filter(|scope| !former.contains(scope));
    former.iter().chain(further).cloned().collect()
}

/// A server with a private address may name private addresses. Any other server may not.
fn scope_of(url: &Url) -> AddressScope {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_private = host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| {
            address.is_loopback() || matches!(address, std::net::IpAddr::V4(address) if address.is_private())
        });
    if is_private { AddressScope::AsWritten } else { AddressScope::PublicOnly }
}

fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
}

/// Writes a page of one sentence. Errors are ignored, because the browser may have closed the connection.
async fn reply(stream: &mut TcpStream, status: &str, text: &str) {
    let page = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    let _ = stream.write_all(page.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// The HTTP client of a sign-in. It checks addresses, does not follow redirects, and limits the size of responses.
struct CheckedHttp {
    addresses: AddressScope,
}

impl OAuthHttpClient for CheckedHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let (parts, body) = request.request.into_parts();
            let url = Url::parse(&parts.uri.to_string())?;
            let client = checked_client(&url, self.addresses).await?;
            let asked = client
                .request(parts.method, url)
                .headers(parts.headers)
                .body(body)
                .timeout(request.timeout.unwrap_or(ANSWER_TIME))
                .send()
                .await?;
            let mut answer = http::Response::new(Vec::new());
            *answer.status_mut() = asked.status();
            *answer.headers_mut() = asked.headers().clone();
            let mut stream = asked.bytes_stream();
            while let Some(piece) = stream.next().await {
                let piece = piece?;
                if answer.body().len() + piece.len() > MAX_ANSWER_BYTES {
                    return Err("the answer is too large".into());
                }
                answer.body_mut().extend_from_slice(&piece);
            }
            Ok(answer)
        })
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("resource", &self.resource).finish_non_exhaustive()
    }
}

//! [`Guarded`]: an MCP server that wants a token, and the authorization server that gives it. What they do is scripted.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use conjure_base::Digest;
use serde_json::{Value, json};

use crate::scripted_http::{HttpServer, Reply, Request};
use crate::wire_headers::answer_mcp;

/// The path of the document that says who gives tokens for the MCP server.
pub(crate) const RESOURCE_DOCUMENT: &str = "/.well-known/oauth-protected-resource/mcp";

/// The path of the document that says how tokens are got.
pub(crate) const SERVER_DOCUMENT: &str = "/.well-known/oauth-authorization-server";

/// The issuer that comes back with a code.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Issuer {
    Correct,
    Wrong,
    Absent,
    /// The same address, written in another way.
    WithSlash,
}

/// What both servers do.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) resource_document: &'static str,
    /// Whether a refusal names that document.
    pub(crate) is_document_told: bool,
    /// The scope that a refusal names.
    pub(crate) challenged_scope: Option<&'static str>,
    /// The resource that the document names, if it is not the server's own.
    pub(crate) resource: Option<&'static str>,
    pub(crate) resource_scopes: Option<&'static [&'static str]>,
    pub(crate) server_document: &'static str,
    /// What all paths of the authorization server begin with.
    pub(crate) prefix: &'static str,
    /// The issuer that the document names, if it is not the right one.
    pub(crate) named_issuer: Option<&'static str>,
    pub(crate) server_scopes: Option<&'static [&'static str]>,
    pub(crate) client_auth: &'static str,
    /// The secret of a client that registers itself. Without it the client is public.
    pub(crate) client_secret: Option<&'static str>,
    pub(crate) is_registration_open: bool,
    pub(crate) takes_client_documents: bool,
    pub(crate) issuer_is_promised: Option<bool>,
    pub(crate) issuer: Issuer,
    /// What a client that registers itself is called.
    pub(crate) client_id: &'static str,
    /// The first part of each token.
    pub(crate) tokens: &'static str,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            resource_document: RESOURCE_DOCUMENT,
            is_document_told: true,
            challenged_scope: None,
            resource: None,
            resource_scopes: None,
            server_document: SERVER_DOCUMENT,
            prefix: "",
            named_issuer: None,
            server_scopes: None,
            client_auth: "none",
            client_secret: None,
            is_registration_open: true,
            takes_client_documents: false,
            issuer_is_promised: Some(true),
            issuer: Issuer::Correct,
            client_id: "registered",
            tokens: "token",
        }
    }
}

/// Both servers.
pub(crate) struct Guarded {
    pub(crate) mcp: HttpServer,
    pub(crate) authorization: HttpServer,
}

impl Guarded {
    pub(crate) async fn start(script: Script) -> Self {
        let authorization = authorization_server(script.clone()).await;
        let issuer = authorization.at(script.prefix);
        let mcp = HttpServer::start(move |request| {
            let token = request.header("authorization").unwrap_or_default();
            let is_accepted = token.starts_with(&format!("Bearer {}", script.tokens));
            resource_server(request, &script, &issuer, is_accepted)
        })
        .await;
        Self { mcp, authorization }
    }

    /// The address that people sign in at.
    pub(crate) fn url(&self) -> String {
        self.mcp.at("/mcp")
    }
}

/// What the MCP server answers. `issuer` gives the tokens.
pub(crate) fn resource_server(request: &Request, script: &Script, issuer: &str, is_accepted: bool) -> Reply {
    if request.path() == script.resource_document && request.method == "GET" {
        let is_root = script.resource_document == "/.well-known/oauth-protected-resource";
        let own = if is_root { request.origin() } else { format!("{}/mcp", request.origin()) };
        let resource = script.resource.map_or(own, str::to_owned);
        let mut document = json!({"resource": resource, "authorization_servers": [issuer]});
        if let Some(scopes) = script.resource_scopes {
            document["scopes_supported"] = json!(scopes);
        }
        return Reply::json(&document);
    }
    // As in the suite, nothing answers but messages.
    if request.path() != "/mcp" || request.method != "POST" {
        return Reply::status(404);
    }
    if is_accepted {
        return answer_mcp(request, &json!([{"name": "test-tool", "inputSchema": {"type": "object"}}]));
    }
    refusal(request, script, 401, "invalid_token", script.challenged_scope)
}

/// The answer to somebody who may not do this.
pub(crate) fn refusal(
    request: &Request,
    script: &Script,
    status: u16,
    error: &str,
    scope: Option<&str>,
) -> Reply {
    let mut challenge = format!("Bearer error=\"{error}\"");
    if let Some(scope) = scope {
        challenge.push_str(&format!(", scope=\"{scope}\""));
    }
    if script.is_document_told {
        let document = format!("{}{}", request.origin(), script.resource_document);
        challenge.push_str(&format!(", resource_metadata=\"{document}\""));
    }
    Reply::json(&json!({"error": error})).with_status(status).with_header("www-authenticate", challenge)
}

/// An authorization server that lets everybody in.
pub(crate) async fn authorization_server(script: Script) -> HttpServer {
    let (challenge, scope) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(String::new())));
    HttpServer::start(move |request| {
        let origin = request.origin();
        let issuer = format!("{origin}{}", script.prefix);
        let path = request.path();
        if path == script.server_document {
            return Reply::json(&server_document(&script, &origin, &issuer));
        }
        let given = request.parameters();
        let of = |name: &str| given.get(name).cloned().unwrap_or_default();
        match path.strip_prefix(script.prefix) {
            Some("/register") if script.is_registration_open => {
                let mut client = json!({"client_id": script.client_id, "token_endpoint_auth_method": script.client_auth});
                client["redirect_uris"] = request.message()["redirect_uris"].clone();
                if let Some(secret) = script.client_secret {
                    client["client_secret"] = json!(secret);
                }
                Reply::json(&client).with_status(201)
            }
            Some("/authorize") => {
                *challenge.lock().unwrap() = of("code_challenge");
                *scope.lock().unwrap() = of("scope").replace(' ', "+");
                let mut back = url::Url::parse(&of("redirect_uri")).unwrap();
                back.query_pairs_mut().append_pair("code", "a-code").append_pair("state", &of("state"));
                let issuer = match script.issuer {
                    Issuer::Correct => Some(issuer),
                    Issuer::Wrong => Some("https://evil.example.com".to_owned()),
                    Issuer::WithSlash => Some(format!("{issuer}/")),
                    Issuer::Absent => None,
                };
                if let Some(issuer) = issuer {
                    back.query_pairs_mut().append_pair("iss", &issuer);
                }
                Reply::status(302).with_header("location", back)
            }
            Some("/token") => {
                let is_proven = challenge_of(&of("code_verifier")) == *challenge.lock().unwrap();
                let is_renewal = of("grant_type") == "refresh_token" && of("refresh_token") == "renew-me";
                if !(is_renewal || is_proven && of("code") == "a-code") {
                    return Reply::json(&json!({"error": "invalid_grant"})).with_status(400);
                }
                let token = format!("{}-{}", script.tokens, scope.lock().unwrap());
                Reply::json(&json!({
                    "access_token": token, "token_type": "Bearer", "expires_in": 3600, "refresh_token": "renew-me",
                }))
            }
            _ => Reply::status(404),
        }
    })
    .await
}

fn server_document(script: &Script, origin: &str, issuer: &str) -> Value {
    let at = |path: &str| format!("{origin}{}{path}", script.prefix);
    let mut document = json!({
        "issuer": script.named_issuer.unwrap_or(issuer),
        "authorization_endpoint": at("/authorize"),
        "token_endpoint": at("/token"),
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": [script.client_auth],
    });
    if script.is_registration_open {
        document["registration_endpoint"] = json!(at("/register"));
    }
    if script.takes_client_documents {
        document["client_id_metadata_document_supported"] = json!(true);
    }
    if let Some(promised) = script.issuer_is_promised {
        document["authorization_response_iss_parameter_supported"] = json!(promised);
    }
    if let Some(scopes) = script.server_scopes {
        document["scopes_supported"] = json!(scopes);
    }
    document
}

/// What a client sends first of a secret that it shows later (RFC 7636).
fn challenge_of(verifier: &str) -> String {
    let digest = Digest::of_bytes(verifier.as_bytes()).to_string();
    let hex = digest.strip_prefix("sha256:").unwrap();
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    URL_SAFE_NO_PAD.encode(bytes)
}

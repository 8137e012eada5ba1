//! How a person signs in at a server, and how the token is used: the scenarios `auth/…` of the official conformance suite by their names.
//! `docs/mcp-conformance.md` lists them.

mod renewal;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_mcp::{AddressScope, Login, LoginError, LoginOptions, refresh_tokens};
use conjure_vault::OAuthTokens;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use crate::authorization_server::{
    Guarded, Issuer, RESOURCE_DOCUMENT, SERVER_DOCUMENT, Script, authorization_server, refusal,
    resource_server,
};
use crate::scripted_http::{HttpServer, Reply, visit};
use crate::support::Session;
use crate::wire_headers::http_spec;

/// What a person does: opens the address, and is sent back.
async fn sign_in(url: &str, options: LoginOptions) -> Result<OAuthTokens, LoginError> {
    let login = Login::start(url, options).await?;
    let (back, _) = visit(login.authorization_url()).await;
    let back = back.unwrap();
    let (tokens, _) = tokio::join!(login.finish(), visit(&back));
    tokens
}

/// Signs in and calls a tool with the token. Returns what the sign-in asked for.
async fn works(servers: &Guarded, options: LoginOptions) -> BTreeMap<String, String> {
    let tokens = sign_in(&servers.url(), options).await.unwrap();
    let session =
        Session::start([http_spec(&servers.url(), Some(tokens.access_token.expose_secret()))]).await;
    session.call("mcp__one__test-tool", json!({})).await.unwrap();
    asked(servers)
}

/// What the only sign-in asked for.
fn asked(servers: &Guarded) -> BTreeMap<String, String> {
    let mut asked = asked_each(servers);
    assert_eq!(asked.len(), 1, "{asked:?}");
    let asked = asked.remove(0);
    assert_eq!(asked["code_challenge_method"], "S256");
    assert_eq!(asked["response_type"], "code");
    asked
}

/// What each sign-in asked for.
fn asked_each(servers: &Guarded) -> Vec<BTreeMap<String, String>> {
    let mut requests = servers.authorization.requests();
    requests.retain(|request| request.path().ends_with("/authorize"));
    requests.iter().map(|request| request.parameters()).collect()
}

/// The scopes of a sign-in.
fn scopes(asked: &BTreeMap<String, String>) -> Vec<&str> {
    asked.get("scope").map(|scope| scope.split(' ').collect()).unwrap_or_default()
}

#[tokio::test]
async fn auth_metadata_default() {
    let servers = Guarded::start(Script::default()).await;
    works(&servers, LoginOptions::default()).await;
    assert_eq!(servers.mcp.asked(RESOURCE_DOCUMENT).len(), 1);
    assert_eq!(servers.mcp.asked("/.well-known/oauth-protected-resource").len(), 0, "it knows where to ask");
    let registered = servers.authorization.asked("/register");
    let [registered] = registered.as_slice() else { panic!("{registered:?}") };
    assert_eq!(registered.message()["application_type"], "native");
    assert_eq!(registered.message()["grant_types"], json!(["authorization_code", "refresh_token"]));
}

#[tokio::test]
async fn auth_metadata_var1() {
    let document = "/.well-known/openid-configuration";
    let script = Script { is_document_told: false, server_document: document, ..Script::default() };
    let servers = Guarded::start(script).await;
    works(&servers, LoginOptions::default()).await;
    assert_eq!(servers.mcp.asked(RESOURCE_DOCUMENT).len(), 1);
    assert_eq!(servers.authorization.asked("/register").len(), 1);
}

#[tokio::test]
async fn auth_metadata_var2() {
    let servers = Guarded::start(Script {
        resource_document: "/.well-known/oauth-protected-resource",
        is_document_told: false,
        server_document: "/.well-known/oauth-authorization-server/tenant1",
        prefix: "/tenant1",
        ..Script::default()
    })
    .await;
    let asked = works(&servers, LoginOptions::default()).await;
    assert_eq!(servers.authorization.asked(SERVER_DOCUMENT).len(), 0, "another one may answer there");
    assert_eq!(
        asked["resource"].trim_end_matches('/'),
        servers.mcp.at(""),
        "the document names the whole server"
    );
    let tokens = sign_in(&servers.url(), LoginOptions::default()).await.unwrap();
    assert_eq!(
        tokens.refresh.unwrap().resource.as_ref(),
        asked.get("resource"),
        "it is renewed for the same"
    );
}

#[tokio::test]
async fn auth_metadata_var3() {
    let servers = Guarded::start(Script {
        resource_document: "/custom/metadata/location.json",
        server_document: "/tenant1/.well-known/openid-configuration",
        prefix: "/tenant1",
        ..Script::default()
    })
    .await;
    works(&servers, LoginOptions::default()).await;
    assert_eq!(servers.authorization.asked(SERVER_DOCUMENT).len(), 0, "another one may answer there");
}

/// A person names the address of the client's document with `--client-id`.
#[tokio::test]
async fn auth_basic_cimd() {
    let document = "https://conjure.example.com/client.json";
    let servers = Guarded::start(Script { takes_client_documents: true, ..Script::default() }).await;
    let options = LoginOptions { client_id: Some(document.to_owned()), ..LoginOptions::default() };
    let asked = works(&servers, options).await;
    assert_eq!(asked["client_id"], document);
    assert_eq!(servers.authorization.asked("/register").len(), 0);
}

#[tokio::test]
async fn auth_scope_from_www_authenticate() {
    let servers = Guarded::start(Script {
        challenged_scope: Some("mcp:basic"),
        resource_scopes: Some(&["mcp:other"]),
        ..Script::default()
    })
    .await;
    assert_eq!(scopes(&works(&servers, LoginOptions::default()).await), ["mcp:basic"]);
}

#[tokio::test]
async fn auth_scope_from_scopes_supported() {
    let all: &[&str] = &["mcp:basic", "mcp:read", "mcp:write"];
    let servers = Guarded::start(Script { resource_scopes: Some(all), ..Script::default() }).await;
    assert_eq!(scopes(&works(&servers, LoginOptions::default()).await), all);
}

#[tokio::test]
async fn auth_scope_omitted_when_undefined() {
    let servers = Guarded::start(Script::default()).await;
    assert_eq!(works(&servers, LoginOptions::default()).await.get("scope"), None);
}

/// A call that needs more than the token permits ends, and says which scopes are missing. Nobody is asked to sign in while it runs. A person who
/// signs in again asks for these and the former ones.
#[tokio::test]
async fn auth_scope_step_up() {
    let script = Script { challenged_scope: Some("mcp:basic"), ..Script::default() };
    let authorization = authorization_server(script.clone()).await;
    let issuer = authorization.at("");
    let mcp = HttpServer::start(move |request| {
        let token = request.header("authorization").unwrap_or_default();
        let is_accepted = !token.is_empty();
        let is_call = request.rpc_method().as_deref() == Some("tools/call");
        if is_accepted && is_call && !token.ends_with("+mcp:write") {
            return refusal(request, &script, 403, "insufficient_scope", Some("mcp:write"));
        }
        resource_server(request, &script, &issuer, is_accepted)
    })
    .await;
    let servers = Guarded { mcp, authorization };
    let first = sign_in(&servers.url(), LoginOptions::default()).await.unwrap();
    assert_eq!(first.scope.as_deref(), Some("mcp:basic"), "it was asked for, and nothing else was granted");
    let session = async |tokens: &OAuthTokens| {
        Session::start([http_spec(&servers.url(), Some(tokens.access_token.expose_secret()))]).await
    };
    let error = session(&first).await.call("mcp__one__test-tool", json!({})).await.unwrap_err();
    assert!(error.contains("`mcp:write`") && error.contains("nothing was done"), "{error}");
    assert_eq!(servers.mcp.messages("tools/call").len(), 1);

    let former_scopes = first.scope.iter().cloned().collect();
    let options = LoginOptions { scopes: vec!["mcp:write".into()], former_scopes, ..LoginOptions::default() };
    let second = sign_in(&servers.url(), options).await.unwrap();
    assert_eq!(second.scope.as_deref(), Some("mcp:basic mcp:write"));
    assert_eq!(scopes(&asked_each(&servers)[1]), ["mcp:basic", "mcp:write"]);
    session(&second).await.call("mcp__one__test-tool", json!({})).await.unwrap();
}

/// A refusal without the header that should go with it says the same.
#[tokio::test]
async fn a_server_that_refuses_without_a_reason_asks_for_authorization() {
    let server = HttpServer::start(|_| Reply::status(401)).await;
    let error = Session::try_start([http_spec(&server.at("/mcp"), None)]).await.err().unwrap();
    assert!(error.contains("asks for authorization"), "{error}");
}

#[tokio::test]
async fn auth_scope_retry_limit() {
    let script = Script {
        challenged_scope: Some("mcp:admin"),
        resource_scopes: Some(&["mcp:admin"]),
        ..Script::default()
    };
    let authorization = authorization_server(script.clone()).await;
    let issuer = authorization.at("");
    let mcp = HttpServer::start(move |request| match request.header("authorization") {
        Some(_) => refusal(request, &script, 403, "insufficient_scope", Some("mcp:admin")),
        None => resource_server(request, &script, &issuer, false),
    })
    .await;
    let servers = Guarded { mcp, authorization };
    let tokens = sign_in(&servers.url(), LoginOptions::default()).await.unwrap();
    let token = tokens.access_token.expose_secret().to_owned();
    let error = Session::try_start([http_spec(&servers.url(), Some(&token))]).await.err().unwrap();
    assert!(error.contains("`mcp:admin`"), "{error}");
    // One sign-in, and no other.
    assert_eq!(scopes(&asked(&servers)), ["mcp:admin"]);
}

/// How the client says who it is when it gets tokens, and when it renews them.
async fn client_auth(method: &'static str, secret: Option<&'static str>) {
    let script = Script { client_auth: method, client_secret: secret, ..Script::default() };
    let servers = Guarded::start(script).await;
    let tokens = sign_in(&servers.url(), LoginOptions::default()).await.unwrap();
    refresh_tokens(tokens.refresh.as_ref().unwrap(), AddressScope::AsWritten).await.unwrap();
    let asked = asked(&servers);
    assert_eq!(asked["resource"], servers.url());
    let requests = servers.authorization.asked("/token");
    assert_eq!(requests.len(), 2);
    for request in requests {
        let given = request.parameters();
        assert_eq!(given["resource"], asked["resource"], "{}", given["grant_type"]);
        let basic =
            format!("Basic {}", STANDARD.encode(format!("registered:{}", secret.unwrap_or_default())));
        let header = (method == "client_secret_basic").then_some(basic);
        assert_eq!(request.header("authorization"), header.as_deref(), "{}", given["grant_type"]);
        let posted = given.get("client_secret").map(String::as_str);
        assert_eq!(posted, secret.filter(|_| method == "client_secret_post"), "{}", given["grant_type"]);
    }
}

#[tokio::test]
async fn auth_token_endpoint_auth_basic() {
    client_auth("client_secret_basic", Some("s3cret")).await;
}

#[tokio::test]
async fn auth_token_endpoint_auth_post() {
    client_auth("client_secret_post", Some("s3cret")).await;
}

#[tokio::test]
async fn auth_token_endpoint_auth_none() {
    client_auth("none", None).await;
}

#[tokio::test]
async fn auth_pre_registration() {
    let script =
        Script { is_registration_open: false, client_auth: "client_secret_basic", ..Script::default() };
    let servers = Guarded::start(script).await;
    let options = LoginOptions {
        client_id: Some("known-client".to_owned()),
        client_secret: Some(SecretString::from("its-secret")),
        ..LoginOptions::default()
    };
    assert_eq!(works(&servers, options).await["client_id"], "known-client");
    let requests = servers.authorization.asked("/token");
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    let basic = format!("Basic {}", STANDARD.encode("known-client:its-secret"));
    assert_eq!(request.header("authorization"), Some(basic.as_str()));
    let error = sign_in(&servers.url(), LoginOptions::default()).await.unwrap_err().to_string();
    assert!(error.contains("`--client-id`"), "{error}");
}

/// Nobody is sent to the authorization server of another resource.
#[tokio::test]
async fn auth_resource_mismatch() {
    for is_document_told in [true, false] {
        let resource = Some("https://evil.example.com/mcp");
        let servers = Guarded::start(Script { resource, is_document_told, ..Script::default() }).await;
        sign_in(&servers.url(), LoginOptions::default()).await.unwrap_err();
        let asked: Vec<_> = servers.authorization.requests();
        assert!(asked.is_empty(), "{asked:?}");
    }
}

#[tokio::test]
async fn auth_offline_access_scope() {
    let servers = Guarded::start(Script {
        resource_scopes: Some(&["mcp:basic"]),
        server_scopes: Some(&["mcp:basic", "offline_access"]),
        takes_client_documents: true,
        ..Script::default()
    })
    .await;
    let asked = works(&servers, LoginOptions::default()).await;
    assert_eq!(scopes(&asked), ["mcp:basic", "offline_access"]);
    let registered = servers.authorization.asked("/register")[0].message();
    assert_eq!(registered["grant_types"], json!(["authorization_code", "refresh_token"]));
}

#[tokio::test]
async fn auth_offline_access_not_supported() {
    let all: &[&str] = &["mcp:basic", "mcp:read"];
    let script = Script { resource_scopes: Some(all), server_scopes: Some(all), ..Script::default() };
    assert_eq!(scopes(&works(&Guarded::start(script).await, LoginOptions::default()).await), all);
}

/// Another authorization server takes over: the old token is refused, and the next sign-in registers a new client there.
#[tokio::test]
async fn auth_authorization_server_migration() {
    let script = |client_id, tokens| Script {
        client_id,
        tokens,
        client_secret: Some("s3cret"),
        challenged_scope: Some("mcp:basic"),
        ..Script::default()
    };
    let (first, second) = (script("client-of-the-first", "old"), script("client-of-the-second", "new"));
    let servers = [authorization_server(first).await, authorization_server(second.clone()).await];
    let issuers = [servers[0].at(""), servers[1].at("")];
    let has_moved = Arc::new(AtomicBool::new(false));
    let moved = Arc::clone(&has_moved);
    let mcp = HttpServer::start(move |request| {
        let number = usize::from(moved.load(Ordering::SeqCst));
        let wanted = ["Bearer old", "Bearer new"][number];
        let is_accepted = request.header("authorization").is_some_and(|token| token.starts_with(wanted));
        resource_server(request, &second, &issuers[number], is_accepted)
    })
    .await;
    let url = mcp.at("/mcp");

    let tokens = sign_in(&url, LoginOptions::default()).await.unwrap();
    let session = Session::start([http_spec(&url, Some(tokens.access_token.expose_secret()))]).await;
    session.call("mcp__one__test-tool", json!({})).await.unwrap();
    has_moved.store(true, Ordering::SeqCst);
    let refused = session.call("mcp__one__test-tool", json!({})).await.unwrap_err();
    assert!(refused.contains("asks for authorization"), "{refused}");

    let tokens = sign_in(&url, LoginOptions::default()).await.unwrap();
    let session = Session::start([http_spec(&url, Some(tokens.access_token.expose_secret()))]).await;
    session.call("mcp__one__test-tool", json!({})).await.unwrap();
    assert_eq!(servers[1].asked("/register").len(), 1);
    for request in servers[1].requests() {
        assert!(!format!("{request:?}").contains("client-of-the-first"), "{request:?}");
    }
    assert_eq!(servers[1].asked("/authorize")[0].parameters()["client_id"], "client-of-the-second");
}

/// Signs in where the browser comes back with this issuer. Returns how that ended, and how often tokens were asked for.
async fn with_issuer(promised: Option<bool>, issuer: Issuer) -> (Result<OAuthTokens, String>, usize) {
    let servers = Guarded::start(Script { issuer_is_promised: promised, issuer, ..Script::default() }).await;
    let ended = sign_in(&servers.url(), LoginOptions::default()).await.map_err(|error| error.to_string());
    asked(&servers);
    (ended, servers.authorization.asked("/token").len())
}

#[tokio::test]
async fn auth_iss_supported() {
    let (ended, tokens) = with_issuer(Some(true), Issuer::Correct).await;
    assert!(ended.is_ok() && tokens == 1, "{:?}", ended.err());
}

#[tokio::test]
async fn auth_iss_not_advertised() {
    let (ended, tokens) = with_issuer(None, Issuer::Absent).await;
    assert!(ended.is_ok() && tokens == 1, "{:?}", ended.err());
}

#[tokio::test]
async fn auth_iss_supported_missing() {
    let (ended, tokens) = with_issuer(Some(true), Issuer::Absent).await;
    assert!(ended.is_err() && tokens == 0);
}

#[tokio::test]
async fn auth_iss_wrong_issuer() {
    let (ended, tokens) = with_issuer(Some(true), Issuer::Wrong).await;
    assert!(ended.unwrap_err().contains("evil.example.com") && tokens == 0);
}

#[tokio::test]
async fn auth_iss_unexpected() {
    let (ended, tokens) = with_issuer(None, Issuer::Wrong).await;
    assert!(ended.unwrap_err().contains("evil.example.com") && tokens == 0);
}

#[tokio::test]
async fn auth_iss_normalized() {
    let (ended, tokens) = with_issuer(Some(true), Issuer::WithSlash).await;
    assert!(ended.is_err() && tokens == 0);
}

/// A document of another authorization server is not used.
#[tokio::test]
async fn auth_metadata_issuer_mismatch() {
    let named_issuer = Some("https://attacker.example.com");
    let servers =
        Guarded::start(Script { named_issuer, server_document: SERVER_DOCUMENT, ..Script::default() }).await;
    let error = sign_in(&servers.url(), LoginOptions::default()).await.unwrap_err().to_string();
    assert!(error.contains("attacker.example.com"), "{error}");
    for path in ["/register", "/authorize", "/token"] {
        assert_eq!(servers.authorization.asked(path).len(), 0, "{path}");
    }
}

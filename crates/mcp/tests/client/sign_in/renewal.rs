//! How an access token is renewed: what the endpoint is sent, and what is made of its answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_base::{Clock as _, SystemClock};
use conjure_mcp::{AddressScope, RefreshError, refresh_tokens};
use conjure_vault::{ClientAuth, OAuthRefresh, OAuthTokens};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::scripted_http::{HttpServer, Reply};

fn refresh(endpoint: String, client_auth: ClientAuth) -> OAuthRefresh {
    OAuthRefresh {
        client_id: "a client".to_owned(),
        refresh_token: SecretString::from("r&1"),
        token_endpoint: endpoint,
        client_auth,
        resource: Some("https://mcp.example.com/mcp".to_owned()),
        scope: Some("read write".to_owned()),
    }
}

/// What becomes of this answer of an endpoint.
async fn renewed(answer: Reply) -> Result<OAuthTokens, RefreshError> {
    let server = HttpServer::start(move |_| answer.clone()).await;
    refresh_tokens(&refresh(server.at("/token"), ClientAuth::None), AddressScope::AsWritten).await
}

#[tokio::test]
async fn tokens_are_renewed_as_the_client_says_who_it_is() {
    let answer = json!({"access_token": "next", "expires_in": 60, "token_type": "Bearer"});
    let server = HttpServer::start(move |_| Reply::json(&answer)).await;
    let secret = || SecretString::from("s:1");
    for (auth, has_header, is_in_body) in [
        (ClientAuth::None, false, false),
        (ClientAuth::Basic { client_secret: secret() }, true, false),
        (ClientAuth::Post { client_secret: secret() }, false, true),
    ] {
        let before = SystemClock.timestamp().millis();
        let refresh = refresh(server.at("/token"), auth);
        let tokens = refresh_tokens(&refresh, AddressScope::AsWritten).await.unwrap();
        assert_eq!(tokens.access_token.expose_secret(), "next");
        assert!(tokens.expires_at.unwrap().millis() >= before + 60_000);
        assert_eq!(tokens.refresh.unwrap().refresh_token.expose_secret(), "r&1", "it stays");
        let request = server.requests().pop().unwrap();
        assert!(request.body.starts_with("grant_type=refresh_token&refresh_token=r%261&client_id=a+client"));
        assert!(request.body.ends_with("&resource=https%3A%2F%2Fmcp.example.com%2Fmcp&scope=read+write"));
        let basic = format!("Basic {}", STANDARD.encode("a+client:s%3A1"));
        assert_eq!(request.header("authorization"), has_header.then_some(basic.as_str()), "{request:?}");
        assert_eq!(request.body.contains("client_secret=s%3A1"), is_in_body, "{request:?}");
    }
}

#[tokio::test]
async fn answers_are_read_as_endpoints_write_them() {
    for written in [json!("60"), json!(60.5), json!(1e99), Value::Null, json!(-1), json!([])] {
        renewed(Reply::json(&json!({"access_token": "n", "expires_in": written}))).await.unwrap();
    }
    for (written, scope) in
        [(json!("a b"), Some("a b")), (json!(["a", "b"]), Some("a b")), (json!(" "), None), (json!(7), None)]
    {
        let answer = json!({"access_token": "n", "scope": written});
        assert_eq!(renewed(Reply::json(&answer)).await.unwrap().scope.as_deref(), scope, "{written}");
    }
    let tokens = renewed(Reply::json(&json!({"access_token": "n", "refresh_token": "r2"}))).await.unwrap();
    assert_eq!(tokens.refresh.unwrap().refresh_token.expose_secret(), "r2");
    assert_eq!(tokens.expires_at, None);
}

#[tokio::test]
async fn refusals_are_told_without_what_an_endpoint_wrote() {
    let error =
        |error: &str| Reply::json(&json!({"error": error, "error_description": "r&1"})).with_status(400);
    for (answer, code, reason) in [
        (error("invalid_grant"), 400, Some("invalid_grant")),
        (error("a b"), 400, None),
        (Reply::status(302), 302, None),
        (Reply::json(&json!({})), 200, Some("its answer has no access token")),
        (Reply::json(&json!("x".repeat(70_000))), 200, Some("its answer is too large")),
    ] {
        let error = renewed(answer).await.unwrap_err();
        let RefreshError::Refused { status, reason: found, .. } = &error else { panic!("{error}") };
        assert_eq!((*status, found.as_deref()), (code, reason), "{error}");
    }
    // Nothing listens there; and a private address that the operator did not write.
    for (url, scope) in [
        ("http://127.0.0.1:1/token", AddressScope::AsWritten),
        ("http://127.0.0.1:1/token", AddressScope::PublicOnly),
        ("nonsense", AddressScope::AsWritten),
    ] {
        let error = refresh_tokens(&refresh(url.to_owned(), ClientAuth::None), scope).await.unwrap_err();
        assert!(matches!(error, RefreshError::Unreachable(_)), "{error}");
    }
}

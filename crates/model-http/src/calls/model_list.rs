//! Lists the models of a service.

use std::time::Duration;

use conjure_conversation::{ModelError, ModelErrorKind};
use reqwest::Method;
use serde::Deserialize;

use crate::calls::attempt_error::AttemptError;
use crate::calls::client::HttpClient;
use crate::calls::service_error::error_kind_of_status;

/// One model of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// The service's name for the model.
    pub id: String,
    /// The size of its context window in tokens, if the service reports it.
    pub context_tokens: Option<u64>,
}

impl HttpClient {
    /// Lists the models that the service has at `path`, below its base URL. It sends one request, without retries, and waits at most this
    /// long.
    ///
    /// # Errors
    /// [`ModelError`]. It also fails if the response is not a list of models.
    pub async fn list_models(
        &self,
        path: &[&str],
        timeout: Duration,
    ) -> Result<Vec<ListedModel>, ModelError> {
        let transport = self.transport();
        let deadline = transport.clock().deadline(timeout);
        let request = transport.request(Method::GET, transport.url(path.iter().copied()));
        let timeout_error = |failure: AttemptError| match failure.error.kind {
            ModelErrorKind::Timeout => ModelError::new(
                ModelErrorKind::Timeout,
                format!("the service did not answer within {timeout:?}"),
            ),
            _ => failure.error,
        };
        let mut response = transport.head(request, timeout, deadline).await.map_err(timeout_error)?;
        let status = response.status().as_u16();
        if !response.status().is_success() {
            let body = transport.excerpt(&mut response, deadline).await;
            let text = error_message(&body).map(|text| transport.errors().clean(&text, 500));
            let text = text.unwrap_or_else(|| transport.errors().excerpt(&body));
            let message = format!("the service answered {status}: {text}");
            return Err(ModelError::new(ModelErrorKind::Api(error_kind_of_status(status)), message));
        }
        let body = transport.body(&mut response, deadline).await.map_err(timeout_error)?;
        parse_list(&body).ok_or_else(|| {
            let excerpt = transport.errors().excerpt(&body);
            let message = format!("the service did not answer with a list of models. It begins: {excerpt}");
            ModelError::new(ModelErrorKind::Protocol, message)
        })
    }
}

/// The message in an error body of any of the usual forms.
fn error_message(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let body = body.get(0).unwrap_or(&body);
    let text = [&body["error"]["message"], &body["error"], &body["message"]];
    text.into_iter().find_map(|text| text.as_str()).map(str::to_owned)
}

/// Parses the list in the form of any API; `None` if the body is not a list of models.
fn parse_list(body: &[u8]) -> Option<Vec<ListedModel>> {
    #[derive(Deserialize)]
    struct List {
        /// The list of all APIs except Gemini.
        data: Option<Vec<Entry>>,
        /// The list of Gemini.
        models: Option<Vec<Entry>>,
    }
    #[derive(Deserialize)]
    struct Entry {
        id: Option<String>,
        /// Gemini's name: `models/NAME`.
        name: Option<String>,
        /// The context size from vLLM.
        max_model_len: Option<u64>,
        /// The context size from OpenRouter.
        context_length: Option<u64>,
        /// The context size from Gemini.
        #[serde(rename = "inputTokenLimit")]
        input_token_limit: Option<u64>,
        /// The context size from the Messages API.
        max_input_tokens: Option<u64>,
        /// The details from llama.cpp.
        meta: Option<Meta>,
    }
    #[derive(Deserialize)]
    struct Meta {
        n_ctx: Option<u64>,
    }
    let list: List = serde_json::from_slice(body).ok()?;
    // llama.cpp has both lists; only `data` has ids.
    let entries = list.data.or(list.models)?;
    let models = entries.into_iter().filter_map(|entry| {
        let name = entry.name.map(|name| name.strip_prefix("models/").map(str::to_owned).unwrap_or(name));
        let context_tokens = entry
            .max_model_len
            .or(entry.context_length)
            .or(entry.input_token_limit)
            .or(entry.max_input_tokens)
            .or(entry.meta.and_then(|meta| meta.n_ctx));
        Some(ListedModel { id: entry.id.or(name)?, context_tokens })
    });
    Some(models.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: &[(&str, Option<u64>)]) {
        let listed = parse_list(body.as_bytes()).unwrap();
        let listed: Vec<_> = listed.iter().map(|model| (model.id.as_str(), model.context_tokens)).collect();
        assert_eq!(listed, expected, "{body}");
    }

    #[test]
    fn the_lists_of_all_services_are_read() {
        check(r#"{"object":"list","data":[{"id":"gpt-x","object":"model"}]}"#, &[("gpt-x", None)]);
        check(r#"{"data":[{"id":"qwen","max_model_len":4096}]}"#, &[("qwen", Some(4096))]);
        check(
            r#"{"models":[{"name":"tiny","model":"tiny"}],"data":[{"id":"tiny","meta":{"n_ctx":256}}]}"#,
            &[("tiny", Some(256))],
        );
        check(
            r#"{"models":[{"name":"models/gemini-x","inputTokenLimit":1000},{"other":1}]}"#,
            &[("gemini-x", Some(1000))],
        );
        check(r#"{"data":[]}"#, &[]);
    }

    #[test]
    fn the_message_of_an_error_is_found() {
        for (body, text) in [
            (r#"{"error":{"message":"no key"}}"#, Some("no key")),
            (r#"[{"error":{"message":"no key"}}]"#, Some("no key")),
            (r#"{"error":"no key"}"#, Some("no key")),
            (r#"{"message":"no key"}"#, Some("no key")),
            ("{}", None),
            ("<html>", None),
        ] {
            assert_eq!(error_message(body.as_bytes()).as_deref(), text, "{body}");
        }
    }

    #[test]
    fn a_body_without_a_list_is_none() {
        for body in ["", "[]", "{}", "<html>", r#"{"data":3}"#, r#"{"error":{"message":"no"}}"#] {
            assert_eq!(parse_list(body.as_bytes()), None, "{body}");
        }
    }
}

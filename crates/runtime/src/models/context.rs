//! [`ModelWithContext`]: a model with the size of its context, which is known or requested from its server.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use conjure_conversation::{Model, ModelStream, Request};
use conjure_model_http::{HttpClient, known_model};
use futures_util::{FutureExt as _, StreamExt as _};

use crate::models::model_target::{KeyVariable, ModelTarget};

/// How long the first call waits for the server's list of models.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// A model with the size of its context in tokens.
pub(super) struct ModelWithContext {
    model: Arc<dyn Model>,
    tokens: Arc<OnceLock<Option<u64>>>,
    /// Asks the server for the size before the first call.
    server: Option<ContextQuery>,
}

/// The server that lists the context of a model.
#[derive(Clone)]
struct ContextQuery {
    client: HttpClient,
    model: String,
}

/// Adds the size of the context to a model: the configured size, else that of the table of known models. If neither
/// exists and the server requires no key, the server's list of models is requested before the first call.
pub(super) fn with_context(
    model: Arc<dyn Model>,
    target: &ModelTarget,
    client: Option<HttpClient>,
) -> Arc<dyn Model> {
    let known = known_model(&target.model).map(|known| known.context_tokens);
    let tokens = target.settings.context_length.or(known);
    let is_own_server = !matches!(target.key, KeyVariable::Required(_));
    let server = client
        .filter(|_| tokens.is_none() && is_own_server)
        .map(|client| ContextQuery { client, model: target.model.clone() });
    match (tokens, server) {
        (None, None) => model,
        (None, server) => Arc::new(ModelWithContext { model, tokens: Arc::default(), server }),
        (tokens, _) => {
            Arc::new(ModelWithContext { model, tokens: Arc::new(OnceLock::from(tokens)), server: None })
        }
    }
}

impl ContextQuery {
    /// The context that the server lists for the model, or for its only model. `None` if it lists none.
    async fn ask(&self) -> Option<u64> {
        let listed = self.client.list_models(&["models"], LIST_TIMEOUT).await.ok()?;
        let own = listed.iter().find(|listed| listed.id == self.model);
        own.or(listed.first().filter(|_| listed.len() == 1))?.context_tokens
    }
}

impl Model for ModelWithContext {
    fn stream(&self, request: Request) -> ModelStream {
        let Some(server) = self.server.clone().filter(|_| self.tokens.get().is_none()) else {
            return self.model.stream(request);
        };
        let (model, tokens) = (Arc::clone(&self.model), Arc::clone(&self.tokens));
        let asked = async move {
            let context = server.ask().await;
            // A concurrent call may have set the same value already.
            let _ = tokens.set(context);
            model.stream(request)
        };
        asked.into_stream().flatten().boxed()
    }

    fn context_tokens(&self) -> Option<u64> {
        self.tokens.get().copied().flatten()
    }

    fn inner(&self) -> Option<&dyn Model> {
        Some(&self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ProcessEnv};

    use conjure_conversation::{Block, Message, Response, model_fn};
    use conjure_model_http::HttpConfig;
    use test_support::http::{Server, answer};

    async fn context_after_a_call(name: &str, list: &'static str) -> Option<u64> {
        let server = Server::always(answer("200 OK", &[], list)).await;
        let environment = ProcessEnv::from_pairs([("OPENAI_BASE_URL", format!("{}/v1", server.url()))]);
        let target = ModelTarget::of_name(name, &Config::default(), &environment).unwrap();
        let client = HttpClient::new(&HttpConfig::new(&target.base_url)).unwrap();
        let answering = Arc::new(model_fn(|_| async { Ok(Response::text("Hi.")) }));
        let model = with_context(answering, &target, Some(client));
        let request = Request::new(vec![Arc::new(Message::user(vec![Block::text("hi")]))]);
        assert!(model.stream(request).all(|event| std::future::ready(event.is_ok())).await);
        model.context_tokens()
    }

    #[tokio::test]
    async fn a_server_of_ones_own_is_asked_for_the_context() {
        let two = r#"{"data":[{"id":"other","max_model_len":1},{"id":"qwen","max_model_len":4096}]}"#;
        assert_eq!(context_after_a_call("openai:qwen", two).await, Some(4096));
        assert_eq!(context_after_a_call("openai:none", two).await, None);
        let one = r#"{"data":[{"id":"file.gguf","meta":{"n_ctx":8192}}]}"#;
        assert_eq!(context_after_a_call("openai:any", one).await, Some(8192));
        assert_eq!(context_after_a_call("openai:any", "<html>").await, None);
        // What is known is not asked for.
        assert_eq!(context_after_a_call("openai:gpt-4.1", "{}").await, Some(1_047_576));
    }
}

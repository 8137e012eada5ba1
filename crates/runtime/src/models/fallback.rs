//! [`FallbackModel`]: a model with substitutes for the case that its service is overloaded or cannot be reached.

use std::sync::Arc;

use conjure_conversation::{
    ApiErrorKind, Model, ModelError, ModelErrorKind, ModelEvent, ModelStream, Request, SideEffects,
};
use futures_util::{StreamExt as _, stream};

/// Models that are tried in order. The next model is called only if the failed one has produced no output, and only after
/// a failure of its service: a rate limit, an overload, a broken connection. The response names the model that produced
/// it.
pub(crate) struct FallbackModel {
    first: Arc<dyn Model>,
    others: Vec<Arc<dyn Model>>,
}

impl FallbackModel {
    /// A model that tries `first`, then `others` in order.
    pub(crate) const fn new(first: Arc<dyn Model>, others: Vec<Arc<dyn Model>>) -> Self {
        Self { first, others }
    }
}

/// A running call.
struct FallbackCall {
    current: ModelStream,
    request: Request,
    /// The models that were not tried yet. The next one is the last.
    left: Vec<Arc<dyn Model>>,
    output: OutputState,
}

/// Whether the caller has received output of a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputState {
    None,
    Shown,
}

impl Model for FallbackModel {
    fn stream(&self, request: Request) -> ModelStream {
        let call = FallbackCall {
            current: self.first.stream(request.clone()),
            // If the call may have had side effects, no other model is tried: it would repeat them.
            left: match self.first.side_effects(&request) {
                SideEffects::None => self.others.iter().rev().cloned().collect(),
                SideEffects::Possible => Vec::new(),
            },
            request,
            output: OutputState::None,
        };
        Box::pin(stream::unfold(call, |mut call| async move {
            match call.current.next().await? {
                Ok(event) => {
                    if !matches!(event, ModelEvent::Queued | ModelEvent::Sent | ModelEvent::UsageReported(_))
                    {
                        call.output = OutputState::Shown;
                    }
                    Some((Ok(event), call))
                }
                Err(error) => match call.left.pop() {
                    Some(next) if call.output == OutputState::None && is_failure_of_service(&error) => {
                        tracing::debug!("the model failed, and the next one is called: {error}");
                        call.current = next.stream(call.request.clone());
                        Some((Ok(ModelEvent::Queued), call))
                    }
                    _ => Some((Err(error), call)),
                },
            }
        }))
    }

    /// The smallest context of all models, because each of them must be able to read the history.
    fn context_tokens(&self) -> Option<u64> {
        let all = [&self.first].into_iter().chain(&self.others);
        all.filter_map(|model| model.context_tokens()).min()
    }

    fn inner(&self) -> Option<&dyn Model> {
        Some(&self.first)
    }
}

/// Whether another service may succeed. Errors in the request or the key are reported instead.
const fn is_failure_of_service(error: &ModelError) -> bool {
    match &error.kind {
        ModelErrorKind::Api(kind) => matches!(
            kind,
            ApiErrorKind::RateLimit | ApiErrorKind::Overloaded | ApiErrorKind::Api | ApiErrorKind::Timeout
        ),
        ModelErrorKind::Connection | ModelErrorKind::Timeout | ModelErrorKind::Truncated => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use conjure_conversation::{Block, Message, Response, model_fn};

    fn request() -> Request {
        Request::new(vec![Arc::new(Message::user(vec![Block::text("hi")]))])
    }

    /// A model that answers with its name.
    fn answers(name: &'static str) -> Arc<dyn Model> {
        Arc::new(model_fn(move |_| async move { Ok(Response::text(name)) }))
    }

    fn fails(kind: ModelErrorKind) -> Arc<dyn Model> {
        Arc::new(model_fn(move |_| {
            let error = ModelError::new(kind.clone(), "no");
            async move { Err(error) }
        }))
    }

    /// A model that shows a text, and then breaks off.
    struct BreaksOff;

    impl Model for BreaksOff {
        fn stream(&self, _: Request) -> ModelStream {
            let delta = ModelEvent::TextDelta { index: 0, text: "a".to_owned() };
            let error = ModelError::new(ModelErrorKind::Truncated, "no");
            Box::pin(stream::iter([Ok(delta), Err(error)]))
        }
    }

    async fn answer(first: Arc<dyn Model>, others: Vec<Arc<dyn Model>>) -> Result<String, ModelErrorKind> {
        let mut stream = FallbackModel::new(first, others).stream(request());
        let mut text = None;
        while let Some(event) = stream.next().await {
            match event {
                Ok(ModelEvent::Finished(response)) => {
                    text = response.content.first().map(|block| block.json().to_owned());
                }
                Ok(_) => {}
                Err(error) => return Err(error.kind),
            }
        }
        Ok(text.expect("an answer"))
    }

    #[tokio::test]
    async fn the_next_model_answers_when_a_service_fails_and_nothing_was_shown() {
        let overloaded = || fails(ModelErrorKind::Api(ApiErrorKind::Overloaded));
        let got = answer(overloaded(), vec![fails(ModelErrorKind::Connection), answers("third")]).await;
        assert!(got.unwrap().contains("third"));
        let got = answer(answers("first"), vec![answers("second")]).await;
        assert!(got.unwrap().contains("first"));
        let got = answer(overloaded(), vec![fails(ModelErrorKind::Connection)]).await;
        assert_eq!(got, Err(ModelErrorKind::Connection), "the last failure is told");
    }

    #[tokio::test]
    async fn what_was_shown_and_what_is_wrong_with_the_request_is_not_hidden() {
        assert_eq!(
            answer(Arc::new(BreaksOff), vec![answers("second")]).await,
            Err(ModelErrorKind::Truncated)
        );
        for kind in [ApiErrorKind::Authentication, ApiErrorKind::InvalidRequest] {
            let kind = ModelErrorKind::Api(kind);
            assert_eq!(answer(fails(kind.clone()), vec![answers("second")]).await, Err(kind));
        }
    }

    #[tokio::test]
    async fn a_call_with_side_effects_is_made_once() {
        struct HasEffects;
        impl Model for HasEffects {
            fn stream(&self, _: Request) -> ModelStream {
                let error = ModelError::new(ModelErrorKind::Connection, "no");
                Box::pin(stream::iter([Err(error)]))
            }
            fn side_effects(&self, _: &Request) -> SideEffects {
                SideEffects::Possible
            }
        }
        let got = answer(Arc::new(HasEffects), vec![answers("second")]).await;
        assert_eq!(got, Err(ModelErrorKind::Connection));
    }
}

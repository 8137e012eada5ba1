//! One model call of a turn: the request, the stream of the response, and the recorded outcome.

use std::panic::AssertUnwindSafe;

use conjure_base::TurnId;
use futures_util::future::{Either, select};
use futures_util::{FutureExt, StreamExt};
use tracing::{Instrument, Span, field};

use super::turn::{DriveError, TurnDriver, TurnServices};
use crate::content::rejected_block::find_rejected_block;
use crate::driver::conversation::SubmitError;
use crate::machine::command::CommandKind;
use crate::machine::{Step, next};
use crate::model::{ApiErrorKind, ModelError, ModelErrorKind, ModelEvent, Request, Response, SideEffects};

const CLIENT_CRASHED: &str = "the model's client has crashed";

/// The outcome of a model call.
enum ModelCallResult {
    Answered(Box<Response>),
    Failed(ModelError),
    Interrupted,
}

impl TurnDriver<'_> {
    pub(super) async fn call_model(&mut self) -> Result<(), DriveError> {
        let Some(turn) = self.conversation.state().turn() else { return Ok(()) };
        let (turn, call) = (turn.id(), turn.model_calls().saturating_add(1));
        let prepared = self.compose_request(turn, call);
        let effects = prepared.as_ref().map_or(SideEffects::None, |(_, effects)| *effects);
        self.conversation.submit(CommandKind::StartModelCall { effects }).await?;
        if next(self.conversation.state()) != Step::AwaitModel {
            // A limit has ended the turn instead.
            return Ok(());
        }
        let request = match prepared {
            Ok((request, _)) => request,
            Err(error) => {
                return Ok(self
                    .conversation
                    .submit(CommandKind::FailModelCall { turn, call, error })
                    .await?);
            }
        };
        let span = tracing::info_span!(
            "chat",
            gen_ai.operation.name = "chat",
            gen_ai.response.model = field::Empty,
            gen_ai.response.id = field::Empty,
            gen_ai.response.finish_reasons = field::Empty,
            gen_ai.usage.input_tokens = field::Empty,
            gen_ai.usage.output_tokens = field::Empty,
            error.type = field::Empty,
        );
        match self.read_stream(request).instrument(span.clone()).await? {
            ModelCallResult::Interrupted => self.interrupt().await,
            ModelCallResult::Answered(response) => {
                record_response(&span, &response);
                Ok(self.conversation.submit(CommandKind::AcceptResponse { turn, call, response }).await?)
            }
            ModelCallResult::Failed(error) => {
                span.record("error.type", field::debug(&error.kind));
                if matches!(
                    error.kind,
                    ModelErrorKind::Api(ApiErrorKind::InvalidRequest | ApiErrorKind::NotFound)
                ) && let Some((message, block)) =
                    find_rejected_block(&error.message, self.conversation.state().messages())
                {
                    let error = error.clone();
                    let reject = CommandKind::RejectBlock { turn, call, error, message, block };
                    match self.conversation.submit(reject).await {
                        // The block cannot be replaced, or was replaced already. Then the call has failed.
                        Err(SubmitError::Rejected(_)) => {}
                        other => return Ok(other?),
                    }
                }
                Ok(self.conversation.submit(CommandKind::FailModelCall { turn, call, error }).await?)
            }
        }
    }

    /// The next request, and its possible side effects. The latter are recorded before the request is sent.
    fn compose_request(&self, turn: TurnId, call: u32) -> Result<(Request, SideEffects), ModelError> {
        let TurnServices { composer, model, .. } = self.services;
        let state = self.conversation.state();
        let composed = std::panic::catch_unwind(AssertUnwindSafe(|| composer.compose(state.view())));
        let composition = composed.map_err(|_| crash_error("the composer of the request has crashed"))?;
        let request = Request {
            turn,
            call,
            instructions: composition.instructions,
            tools: composition.tools,
            messages: state.messages().to_vec(),
            container: state.container().cloned(),
            hosted: state.profile().map(|profile| profile.hosted.as_slice().into()).unwrap_or_default(),
        };
        let asked = std::panic::catch_unwind(AssertUnwindSafe(|| model.side_effects(&request)));
        let effects = asked.map_err(|_| crash_error(CLIENT_CRASHED))?;
        Ok((request, effects))
    }

    /// Reads one response stream to its end. Dropping the future abandons the call.
    async fn read_stream(&mut self, request: Request) -> Result<ModelCallResult, DriveError> {
        let client_crashed = || ModelCallResult::Failed(crash_error(CLIENT_CRASHED));
        let model = self.services.model;
        let started = std::panic::catch_unwind(AssertUnwindSafe(|| model.stream(request)));
        let Ok(mut answer) = started else { return Ok(client_crashed()) };
        let cancelled = self.cancel.clone().cancelled_owned();
        let mut turn_end = select(Box::pin(cancelled), self.conversation.clock().sleep_until(self.deadline));
        loop {
            let heard = AssertUnwindSafe(answer.next()).catch_unwind();
            // The turn's end is polled first: a model that never stops must not keep a turn from ending.
            let event = match select(&mut turn_end, select(heard, self.inbox.next())).await {
                Either::Left(_) => return Ok(ModelCallResult::Interrupted),
                Either::Right((Either::Right((message, _)), _)) => {
                    self.accept_inbox(message).await?;
                    continue;
                }
                Either::Right((Either::Left((event, _)), _)) => event,
            };
            match event {
                Err(_panic) => return Ok(client_crashed()),
                Ok(Some(Ok(ModelEvent::Finished(response)))) => {
                    return Ok(ModelCallResult::Answered(response));
                }
                Ok(Some(Ok(preview))) => self.conversation.observer().on_preview(&preview),
                Ok(Some(Err(error))) => return Ok(ModelCallResult::Failed(error)),
                Ok(None) => {
                    let message = "the stream ended before the answer was complete";
                    return Ok(ModelCallResult::Failed(ModelError::new(ModelErrorKind::Truncated, message)));
                }
            }
        }
    }
}

/// The error for code of the embedder that panicked during a model call.
pub(super) fn crash_error(what: &str) -> ModelError {
    ModelError::new(ModelErrorKind::Protocol, what)
}

fn record_response(span: &Span, response: &Response) {
    if let Some(model) = &response.model {
        span.record("gen_ai.response.model", model.as_str());
    }
    if let Some(id) = &response.id {
        span.record("gen_ai.response.id", id.as_str());
    }
    span.record("gen_ai.response.finish_reasons", field::display(&response.stop_reason));
    span.record("gen_ai.usage.input_tokens", response.usage.total_input());
    span.record("gen_ai.usage.output_tokens", response.usage.output_tokens);
}

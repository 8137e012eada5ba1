//! Clients, requests and answers in one line.

use std::sync::Arc;
use std::time::Duration;

use conjure_anthropic::{Client, Config, Messages, ModelOptions, Timeouts};
use conjure_base::TurnId;
use conjure_conversation::{Block, Message, Model, ModelError, ModelEvent, ModelStream, Request, Response};
use futures_util::StreamExt;
use secrecy::SecretString;

use crate::clock::ManualClock;
use crate::server::Server;

pub(crate) const KEY: &str = "sk-ant-canary-0123456789";
pub(crate) const MODEL: &str = "claude-sonnet-4-5";

/// Long enough never to expire in a test, and distinct from other waits.
pub(crate) const IDLE: Duration = Duration::from_secs(120);
pub(crate) const TOTAL: Duration = Duration::from_secs(600);

pub(crate) fn config(server: &Server) -> Config {
    Config::new(SecretString::from(KEY)).with_base_url(server.url()).with_http(|http| {
        http.with_seed(1).with_timeouts(Timeouts {
            connect: Duration::from_secs(10),
            idle: IDLE,
            total: TOTAL,
        })
    })
}

pub(crate) fn messages(config: &Config, clock: &ManualClock) -> Messages {
    Client::with_clock(config, Arc::new(clock.clone())).unwrap().messages(ModelOptions::new(MODEL)).unwrap()
}

/// A client of this server whose time is paused.
pub(crate) fn client(server: &Server) -> (Messages, ManualClock) {
    let clock = ManualClock::new();
    (messages(&config(server), &clock), clock)
}

pub(crate) fn turn() -> TurnId {
    TurnId::FIRST
}

pub(crate) fn ask(text: &str) -> Request {
    Request {
        turn: turn(),
        instructions: vec!["Be brief.".to_owned()],
        ..Request::new(vec![Arc::new(Message::user(vec![Block::text(text)]))])
    }
}

/// All events of a stream up to its end, and how it ended.
pub(crate) async fn drain(mut stream: ModelStream) -> (Vec<ModelEvent>, Result<Response, ModelError>) {
    let mut events = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            Ok(ModelEvent::Finished(response)) => {
                assert!(stream.next().await.is_none(), "`Finished` is the last event");
                return (events, Ok(*response));
            }
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(stream.next().await.is_none(), "an error is the last event");
                return (events, Err(error));
            }
        }
    }
    panic!("the stream ended without an answer or an error: {events:?}");
}

pub(crate) async fn call(messages: &Messages) -> Result<Response, ModelError> {
    drain(messages.stream(ask("Hi"))).await.1
}

/// The text of a response.
pub(crate) fn text(response: &Response) -> String {
    Message::assistant(response.content.clone()).text()
}

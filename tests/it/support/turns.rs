//! Sends a message to a session, waits for the end of its turn, and returns the stop reason and the last text.

use std::panic::Location;
use std::time::Duration;

use conjure::conversation::TurnStop;
use conjure::model::BlockKind;
use conjure::runtime::Deadline;
use conjure::{
    Clock as _, Message, Session, SessionEventKind, SystemClock, TenantId, TurnEvent, TurnHandle, Update,
};

/// A deadline that nothing here reaches.
pub(crate) fn soon() -> Deadline {
    SystemClock.deadline(Duration::from_secs(300))
}

/// Polls every 2 ms until `is_so` returns true. Fails after a long time, and names the caller.
#[track_caller]
pub(crate) fn until(mut is_so: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let place = Location::caller();
    async move {
        let deadline = soon();
        while !is_so().await {
            assert!(!SystemClock.remaining(deadline).is_zero(), "{place}: waited in vain");
            SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(2))).await;
        }
    }
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

/// The text of the tool results in a message, if there are any.
pub(crate) fn tool_results(message: &Message) -> Option<String> {
    let results = message.content.iter().filter_map(|block| match block.kind() {
        BlockKind::ToolResult { text, .. } => Some(text.clone()),
        _ => None,
    });
    let results: Vec<String> = results.collect();
    (!results.is_empty()).then(|| results.join("\n"))
}

/// Sends a message, and waits for the end of its turn. Returns the stop reason and the last text.
pub(crate) async fn say(session: &Session, text: &str) -> (TurnStop, String) {
    follow(&mut session.send(text).await.unwrap()).await
}

/// Waits for the end of a turn. Returns the stop reason and the last text.
pub(crate) async fn follow(turn: &mut TurnHandle) -> (TurnStop, String) {
    let mut text = String::new();
    loop {
        match turn.next().await.unwrap().unwrap() {
            TurnEvent::Ended { stop, .. } => return (stop, text),
            TurnEvent::Update(Update::Recorded(event)) => {
                if let SessionEventKind::AgentMessage { content } = event.kind {
                    text = Message::assistant(content).text();
                }
            }
            _ => {}
        }
    }
}

/// Sends a message whose turn must end well. Returns the last text.
#[track_caller]
pub(crate) fn ask(session: &Session, message: &str) -> impl Future<Output = String> {
    let place = Location::caller();
    async move {
        let (stop, text) = say(session, message).await;
        assert!(matches!(stop, TurnStop::Answered(_)), "{place}: {stop}");
        text
    }
}

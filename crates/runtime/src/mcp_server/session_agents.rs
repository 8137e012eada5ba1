//! The agents of the tool `run_agent`. Each prompt runs in a session of its own.

use conjure_actors::session::{Session, TurnEvent, Update};
use conjure_base::TenantId;
use conjure_conversation::{
    Decision, EventId, InputAnswers, SessionEvent, SessionEventKind, SessionStopReason,
};
use conjure_mcp::server::{AgentFuture, AgentRunner, ProgressFn};
use tokio_util::sync::CancellationToken;

use crate::runtime::{Runtime, SessionSpec};

/// The base prompt of an agent.
const BASE_PROMPT: &str = "You are a helpful assistant with tools. Another program has given you one task, and reads your last message as the \
                           result. Nobody can answer questions.";

/// The reason that the model gets if a call needs a person's approval.
const NO_APPROVER: &str = "this call needs a person's approval, and nobody can be asked here";

/// Runs a session of a tenant for each prompt.
#[derive(Debug)]
pub struct SessionAgents {
    runtime: Runtime,
    tenant: TenantId,
    model: Option<String>,
    mcp_servers: Vec<String>,
}

impl SessionAgents {
    /// Runs agents of this tenant with this model. Without one, they have the model of sessions that name none.
    #[must_use]
    pub const fn new(runtime: Runtime, tenant: TenantId, model: Option<String>) -> Self {
        Self { runtime, tenant, model, mcp_servers: Vec::new() }
    }

    /// Gives the agents the tools of these configured MCP servers. By default they have no MCP servers.
    #[must_use]
    pub fn mcp_servers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.mcp_servers = names.into_iter().map(Into::into).collect();
        self
    }

    async fn answer(
        &self,
        prompt: String,
        progress: ProgressFn,
        cancel: CancellationToken,
    ) -> Result<String, String> {
        let mut spec = SessionSpec::new(self.tenant.clone())
            .base_prompt(BASE_PROMPT)
            .mcp_servers(self.mcp_servers.iter().cloned());
        if let Some(model) = &self.model {
            spec = spec.model(model);
        }
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let session = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err("the agent was stopped before it began".to_owned()),
            session = self.runtime.open(spec) => session.map_err(|error| failed(&error))?,
        };
        let mut interrupt_guard = InterruptOnDrop { runtime: &self.runtime, session: Some(&session) };
        progress(format!("works in the session {}", session.id()));
        let mut turn = session.send(prompt).await.map_err(|error| failed(&error))?;
        loop {
            let event = tokio::select! {
                biased;
                () = cancel.cancelled() => {
                    // The session stays, with what it has done so far. The user can inspect it by its id.
                    let _ = session.interrupt().await;
                    return Err(format!("the agent was stopped; its session is {}", session.id()));
                }
                event = turn.next() => event,
            };
            match event {
                None => {
                    return Err(format!(
                        "the agent ended without an answer; its session is {}",
                        session.id()
                    ));
                }
                Some(Err(error)) => return Err(format!("{error}; the agent's session is {}", session.id())),
                Some(Ok(TurnEvent::Ended { stop, .. })) => {
                    interrupt_guard.session = None;
                    let snapshot = session.snapshot().await.map_err(|error| failed(&error))?;
                    return if snapshot.last_text.is_empty() {
                        Err(format!(
                            "the agent ended without an answer: {stop}; its session is {}",
                            session.id()
                        ))
                    } else {
                        Ok(snapshot.last_text)
                    };
                }
                Some(Ok(TurnEvent::Update(Update::Recorded(event)))) => {
                    for call in waiting_calls(&event) {
                        let answered = if call.input_in(session.id()).is_some() {
                            session.provide_input_event(call, InputAnswers::new()).await
                        } else {
                            let decision = Decision::Deny { reason: NO_APPROVER.to_owned() };
                            session.decide_event(call, decision).await
                        };
                        answered.map_err(|error| failed(&error))?;
                    }
                    if let Some(text) = progress_text(&event) {
                        progress(text);
                    }
                }
                Some(Ok(_)) => {}
            }
        }
    }
}

/// Interrupts the turn of an agent if the future of its caller is dropped.
struct InterruptOnDrop<'a> {
    runtime: &'a Runtime,
    /// `None` once the turn has ended.
    session: Option<&'a Session>,
}

impl Drop for InterruptOnDrop<'_> {
    fn drop(&mut self) {
        let Some(session) = self.session.cloned() else { return };
        self.runtime.spawn_in_background(async move {
            // If the interrupt cannot be recorded, the runtime is about to end.
            let _ = session.interrupt().await;
        });
    }
}

/// The calls that wait for a decision or input of a person.
fn waiting_calls(event: &SessionEvent) -> &[EventId] {
    match &event.kind {
        SessionEventKind::SessionStatusIdle {
            stop_reason: SessionStopReason::RequiresAction { event_ids, .. },
            ..
        } => event_ids,
        _ => &[],
    }
}

/// The progress message for an event, if it has one.
fn progress_text(event: &SessionEvent) -> Option<String> {
    match &event.kind {
        SessionEventKind::AgentToolUse { name, .. } => Some(format!("calls `{name}`")),
        SessionEventKind::ModelRequestStart { call, .. } => Some(format!("asks the model (call {call})")),
        _ => None,
    }
}

impl AgentRunner for SessionAgents {
    fn run<'a>(&'a self, prompt: String, progress: ProgressFn, cancel: CancellationToken) -> AgentFuture<'a> {
        Box::pin(self.answer(prompt, progress, cancel))
    }
}

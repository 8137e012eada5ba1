//! [`EditorModes`]: whether the editor's user decides on the tool calls of a session.
//!
//! State: the mode of each session, in memory. After a restart, each session is in the mode `ask`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use agent_client_protocol::v1::schema::{SessionMode, SessionModeState};
use conjure_base::{SessionId, lock};
use conjure_conversation::{Authorization, ToolCall};
use conjure_toolbox::{Approver, CallerIdentity};
use futures_util::future::BoxFuture;

/// Tools that only read what the model may read anyway.
const READ_ONLY_TOOLS: [&str; 9] = [
    "view",
    "read",
    "glob",
    "grep",
    "skills_load",
    "skills_unload",
    "skills_read",
    "mcp_search_tools",
    "skill_list",
];

/// How tool calls of a session are approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// The user decides on each call that may change something.
    #[default]
    Ask,
    /// All calls run without approval.
    Allow,
}

impl Mode {
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Allow => "allow",
        }
    }

    /// The mode with this id.
    pub(crate) fn from_id(id: &str) -> Option<Self> {
        [Self::Ask, Self::Allow].into_iter().find(|mode| mode.id() == id)
    }

    /// The modes as the editor shows them, with this one as the current mode.
    pub(crate) fn state(self) -> SessionModeState {
        let ask = SessionMode::new(Self::Ask.id(), "Ask")
            .description("Asks before a tool changes something or runs a command".to_owned());
        let allow = SessionMode::new(Self::Allow.id(), "Allow")
            .description("Runs all tools without asking".to_owned());
        SessionModeState::new(self.id(), vec![ask, allow])
    }
}

/// The modes of all sessions. It implements [`Approver`]. Clones share the modes.
#[derive(Debug, Clone, Default)]
pub struct EditorModes(Arc<Mutex<HashMap<SessionId, Mode>>>);

impl EditorModes {
    pub(crate) fn of(&self, session: SessionId) -> Mode {
        lock(&self.0).get(&session).copied().unwrap_or_default()
    }

    pub(crate) fn set(&self, session: SessionId, mode: Mode) {
        lock(&self.0).insert(session, mode);
    }
}

impl Approver for EditorModes {
    fn review<'a>(
        &'a self,
        call: &'a ToolCall,
        caller: Option<&'a CallerIdentity>,
    ) -> BoxFuture<'a, Authorization> {
        let mode = caller.map_or(Mode::Ask, |caller| self.of(caller.session));
        let asks = mode == Mode::Ask && !READ_ONLY_TOOLS.contains(&call.name.as_str());
        Box::pin(async move {
            if asks {
                Authorization::Ask { reason: format!("the model wants to run `{}`", call.name) }
            } else {
                Authorization::Allow
            }
        })
    }
}

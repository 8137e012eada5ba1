//! When a compaction is due, and where the history may be cut.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;

use super::policy::CompactionPolicy;
use crate::content::block::{Block, BlockKind};
use crate::content::message::{Message, Role};
use crate::state::running_turn::{RunningTurn, TurnPhase};
use crate::state::session_state::SessionState;

impl SessionState {
    /// The input tokens of the last response, which measure the history; `None` if there is none since the last compaction.
    #[must_use]
    pub const fn input_tokens(&self) -> Option<u64> {
        self.history_size.input_tokens
    }

    /// How many of the last messages would stay if the history were compacted now; `None` when no compaction is due.
    #[must_use]
    pub fn compaction_due(&self, policy: &CompactionPolicy) -> Option<usize> {
        let input = self.history_size.input_tokens?;
        let is_due = matches!(&self.turn, Some(RunningTurn { phase: TurnPhase::CallModel, .. }))
            && input >= policy.threshold
            && input >= self.history_size.next_attempt_at;
        let replaced = if is_due { cut_point(&self.messages, policy.keep) } else { None };
        replaced.map(|replaced| self.messages.len().saturating_sub(replaced))
    }
}

/// How many of the first messages can be replaced.
///
/// The rest starts with a response, so roles alternate after the summary and a result stays with its call. A call of the service's own
/// tools stays with its result too, which may be in a later response. Fewer than three messages are not worth a summary.
fn cut_point(messages: &[Arc<Message>], keep: usize) -> Option<usize> {
    let max = messages.len().checked_sub(keep.max(1))?;
    let mut open: HashSet<String> = HashSet::new();
    let mut best = None;
    for (index, message) in messages.iter().enumerate().take(max.saturating_add(1)) {
        if index >= 3 && message.role == Role::Assistant && open.is_empty() {
            best = Some(index);
        }
        for block in &message.content {
            match server_tool_part(block) {
                Some(ServerToolPart::Call(id)) => _ = open.insert(id),
                Some(ServerToolPart::Result(id)) => _ = open.remove(&id),
                // A message of the user ends the open calls of the service's tools.
                None if message.role == Role::User && !is_result(block) => open.clear(),
                None => {}
            }
        }
    }
    best
}

fn is_result(block: &Block) -> bool {
    matches!(block.kind(), BlockKind::ToolResult { .. })
}

/// A call or a result of the service's own tools.
pub(super) enum ServerToolPart {
    Call(String),
    Result(String),
}

pub(super) fn server_tool_part(block: &Block) -> Option<ServerToolPart> {
    #[derive(Deserialize)]
    struct Ids {
        #[serde(default)]
        id: String,
        #[serde(default)]
        tool_use_id: String,
    }
    let BlockKind::Other(kind) = block.kind() else { return None };
    let ids = || serde_json::from_str::<Ids>(block.json()).ok();
    match kind.as_str() {
        "server_tool_use" | "mcp_tool_use" => Some(ServerToolPart::Call(ids()?.id)),
        kind if kind.ends_with("_tool_result") => Some(ServerToolPart::Result(ids()?.tool_use_id)),
        _ => None,
    }
}

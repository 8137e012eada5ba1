//! [`ToolServersHook`]: the first model call waits for the tools of required servers, and servers that fail are reported.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use conjure_base::lock;
use conjure_conversation::{CommandKind, PreCallHook, SessionState, ToolServerFailure};
use conjure_mcp::McpServers;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};

/// Waits for the required servers once. Reports each server that could not be started to the model, once.
pub(in crate::runtime::session) struct ToolServersHook {
    servers: Arc<McpServers>,
    state: Arc<Mutex<HookState>>,
}

#[derive(Default)]
struct HookState {
    has_waited: bool,
    /// The names of the servers that were reported.
    reported: BTreeSet<String>,
}

impl ToolServersHook {
    pub(in crate::runtime::session) fn new(servers: Arc<McpServers>) -> Self {
        Self { servers, state: Arc::default() }
    }

    /// A report of the failures that were not reported yet; `None` if there are none.
    fn new_failures(&self) -> Option<CommandKind> {
        let mut state = lock(&self.state);
        let mut failures: Vec<ToolServerFailure> = self.servers.failures();
        failures.retain(|failure| state.reported.insert(failure.server.clone()));
        (!failures.is_empty()).then_some(CommandKind::ReportToolServers { failures })
    }
}

impl PreCallHook for ToolServersHook {
    fn before_model_call(&self, _: &SessionState) -> Option<BoxStream<'static, CommandKind>> {
        if lock(&self.state).has_waited {
            return self.new_failures().map(|report| stream::iter([report]).boxed());
        }
        let (servers, state) = (Arc::clone(&self.servers), Arc::clone(&self.state));
        // The driver calls the hook again after the wait. If the wait is interrupted, the next turn starts it again.
        let waiting = stream::once(async move {
            servers.wait_required().await;
            lock(&state).has_waited = true;
        });
        Some(waiting.filter_map(|()| async { None }).boxed())
    }
}

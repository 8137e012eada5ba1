//! [`RequiredServersHook`]: the first model call waits for the tools of required servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conjure_conversation::{Block, CommandKind, PreCallHook, SessionState};
use conjure_mcp::McpServers;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};

/// Waits for required servers, once. The model is told of those that could not be started.
pub(in crate::runtime::session) struct RequiredServersHook {
    servers: Arc<McpServers>,
    has_waited: AtomicBool,
}

impl RequiredServersHook {
    pub(in crate::runtime::session) const fn new(servers: Arc<McpServers>) -> Self {
        Self { servers, has_waited: AtomicBool::new(false) }
    }
}

impl PreCallHook for RequiredServersHook {
    fn before_model_call(&self, _: &SessionState) -> Option<BoxStream<'static, CommandKind>> {
        if self.has_waited.swap(true, Ordering::Relaxed) {
            return None;
        }
        let servers = Arc::clone(&self.servers);
        let waiting = stream::once(async move { servers.wait_required().await.err() });
        let told = waiting.filter_map(|failure| async {
            let text = format!("[Tools are missing: {}]", failure?);
            Some(CommandKind::Steer { input: vec![Block::text(text)] })
        });
        Some(told.boxed())
    }
}

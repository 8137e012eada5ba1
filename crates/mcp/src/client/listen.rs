//! Subscriptions (`subscriptions/listen`): servers of the newest revision tell of changes only those who ask for it.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Backoff, Clock as _, SystemClock};
use rmcp::model::{ErrorCode, ProtocolVersion, ServerNotification, SubscriptionFilter};
use rmcp::service::Peer;
use rmcp::{RoleClient, ServiceError};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The waits between subscriptions that fail or end.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// After so many that failed in a row, nothing is heard of changes until the next connection.
const MAX_FAILURES: u32 = 8;

/// Has `changed` told when the server's tools change, as long as the value lives. Servers of the former era tell everybody, and those whose tools
/// stay the same have nothing to tell.
pub(super) fn listen(peer: &Peer<RoleClient>, changed: &Arc<Notify>) -> JoinSet<()> {
    let mut listening = JoinSet::new();
    let tells = peer.peer_info().is_some_and(|info| {
        let tools = info.capabilities.tools.as_ref();
        info.protocol_version >= ProtocolVersion::V_2026_07_28
            && tools.is_some_and(|tools| tools.list_changed == Some(true))
    });
    if tells {
        listening.spawn(keep_listening(peer.clone(), Arc::clone(changed)));
    }
    listening
}

async fn keep_listening(peer: Peer<RoleClient>, changed: Arc<Notify>) {
    let mut failures = 0;
    while failures < MAX_FAILURES && !peer.is_transport_closed() {
        match listen_once(&peer, &changed).await {
            Ok(()) => failures = 0,
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => return,
            Err(error) => {
                tracing::debug!(%error, "an MCP server does not tell of changes");
                failures += 1;
            }
        }
        SystemClock.sleep_until(SystemClock.deadline(RETRY.wait(failures))).await;
    }
}

/// Subscribes, and hears of changes until the subscription ends.
async fn listen_once(peer: &Peer<RoleClient>, changed: &Notify) -> Result<(), ServiceError> {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let mut subscription = peer.listen(filter).await?;
    // What changed before the server had confirmed was told to nobody.
    changed.notify_one();
    while let Some(told) = subscription.next().await? {
        if matches!(told, ServerNotification::ToolListChangedNotification(_)) {
            changed.notify_one();
        }
    }
    Ok(())
}

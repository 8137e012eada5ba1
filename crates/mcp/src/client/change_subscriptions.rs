//! Subscriptions (`subscriptions/listen`): servers of the newest revision report changes only to clients that subscribe.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Backoff, Clock as _, SystemClock};
use rmcp::model::{ErrorCode, ProtocolVersion, ServerNotification, SubscriptionFilter};
use rmcp::service::Peer;
use rmcp::{RoleClient, ServiceError};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The backoff between subscriptions that fail or end.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// After this many failures in a row, the client stops listening until the next connection.
const MAX_FAILURES: u32 = 8;

/// How long a server may take to confirm a subscription.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(60);

/// After this time, a subscription counts as successful.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// Notifies `changed` when the server's tools change. It stops when the returned value is dropped.
///
/// Servers of revisions before 2026-07-28 send notifications without a subscription. Servers whose tools never change send none.
pub(super) fn listen(peer: &Peer<RoleClient>, changed: &Arc<Notify>) -> JoinSet<()> {
    let mut listening = JoinSet::new();
    let announces_changes = peer.peer_info().is_some_and(|info| {
        let tools = info.capabilities.tools.as_ref();
        info.protocol_version >= ProtocolVersion::V_2026_07_28
            && tools.is_some_and(|tools| tools.list_changed == Some(true))
    });
    if announces_changes {
        listening.spawn(keep_listening(peer.clone(), Arc::clone(changed)));
    }
    listening
}

async fn keep_listening(peer: Peer<RoleClient>, changed: Arc<Notify>) {
    let mut failures = 0;
    while failures < MAX_FAILURES && !peer.is_transport_closed() {
        let stable_at = SystemClock.deadline(STABLE_AFTER);
        let listened = listen_once(&peer, &changed).await;
        failures = if SystemClock.remaining(stable_at).is_zero() { 0 } else { failures + 1 };
        match listened {
            Ok(()) => {}
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => return,
            Err(error) => {
                tracing::debug!(%error, "an MCP server does not report changes");
            }
        }
        SystemClock.sleep_until(SystemClock.deadline(RETRY.wait(failures))).await;
    }
}

/// Subscribes, and forwards changes until the subscription ends.
async fn listen_once(peer: &Peer<RoleClient>, changed: &Notify) -> Result<(), ServiceError> {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let mut subscription = tokio::select! {
        biased;
        subscription = peer.listen(filter) => subscription?,
        () = SystemClock.sleep_until(SystemClock.deadline(CONFIRM_TIMEOUT)) => {
            return Err(ServiceError::Timeout { timeout: CONFIRM_TIMEOUT });
        }
    };
    // Changes before the confirmation were not reported.
    changed.notify_one();
    while let Some(told) = subscription.next().await? {
        if matches!(told, ServerNotification::ToolListChangedNotification(_)) {
            changed.notify_one();
        }
    }
    Ok(())
}

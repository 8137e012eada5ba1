//! [`StartupAnswers`]: recognises an answer to `server/discover` that arrives after the client stopped waiting.
//!
//! Servers of earlier revisions may ignore `server/discover`. So the client waits for a short time and then sends `initialize`. A slow server
//! answers both requests, or refuses `initialize` because it has already answered `server/discover`. The SDK takes the late answer for that
//! of `initialize`, and the connection fails.

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::service::TxJsonRpcMessage;

/// The id of the start-up request that the client stopped waiting for.
#[derive(Debug, Default)]
pub(in crate::client) struct StartupAnswers {
    /// The last `server/discover`.
    discover: Option<RequestId>,
    /// The `server/discover` after which `initialize` was sent.
    given_up: Option<RequestId>,
}

impl StartupAnswers {
    /// Records a message that the client sends.
    pub(in crate::client) fn sent(&mut self, message: &TxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Request(request) = message else { return };
        match request.request {
            ClientRequest::DiscoverRequest(_) => self.discover = Some(request.id.clone()),
            ClientRequest::InitializeRequest(_) => self.given_up = self.discover.take(),
            _ => {}
        }
    }

    /// Whether a message is the late answer to `server/discover`.
    pub(in crate::client) fn is_late(&self, message: &ServerJsonRpcMessage) -> bool {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        id.is_some() && id == self.given_up.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(id: u32, method: &str, params: serde_json::Value) -> TxJsonRpcMessage<RoleClient> {
        serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .unwrap()
    }

    fn answers(id: u32) -> [ServerJsonRpcMessage; 2] {
        let error =
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}});
        let result = json!({"jsonrpc": "2.0", "id": id, "result": {}});
        [error, result].map(|message| serde_json::from_value(message).unwrap())
    }

    #[test]
    fn only_the_answer_that_nobody_waits_for_is_late() {
        let mut startup = StartupAnswers::default();
        startup.sent(&request(0, "server/discover", json!({})));
        assert!(answers(0).iter().all(|answer| !startup.is_late(answer)), "it is waited for");
        let client = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        startup.sent(&request(1, "initialize", client));
        assert!(answers(0).iter().all(|answer| startup.is_late(answer)));
        startup.sent(&request(2, "tools/list", json!({})));
        assert!(answers(1).iter().chain(&answers(2)).all(|answer| !startup.is_late(answer)));
    }
}

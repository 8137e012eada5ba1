//! Tool servers: those that a session names by address, and the failures of those that could not be queried.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::tools::agent_toolset::PermissionPolicy;

/// An MCP server that a session reaches by HTTP, as the session's creator named it. It is recorded, so it holds no secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteToolServer {
    /// Its name in the session, which is a part of its tools' names.
    pub name: String,
    /// Its address.
    pub url: String,
    /// The rule for tools without a rule of their own.
    pub default: ToolRule,
    /// The rules of single tools, by their names on the server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, ToolRule>,
}

/// Whether a tool is given to the model, and who decides on its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRule {
    /// Whether the model has it.
    pub enabled: bool,
    /// Who decides on its calls.
    pub permission: PermissionPolicy,
}

/// A tool server that could not be queried for its tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolServerFailure {
    /// Its name.
    pub server: String,
    /// Why, for people.
    pub reason: String,
    /// Whether the server requires authorisation, and did not accept the credentials of the request, if there were any.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_authorization: bool,
}

/// The note to the model about servers that failed. A reason that several servers share appears once.
#[must_use]
pub fn tool_servers_note(failures: &[ToolServerFailure]) -> String {
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ToolServerFailure { server, reason, .. } in failures {
        // Failures with the same cause differ only in the server's name.
        let name = format!("`{server}`");
        reasons.entry(reason.replace(&name, "…")).or_default().push(name);
    }
    let texts: Vec<String> =
        reasons.iter().map(|(cause, names)| cause.replacen('…', &names.join(", "), 1)).collect();
    format!("[Tools are missing: {}]", texts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_several_share_is_told_once() {
        let failure = |server: &str, reason: &str| ToolServerFailure {
            server: server.to_owned(),
            reason: reason.to_owned(),
            needs_authorization: false,
        };
        let note = tool_servers_note(&[
            failure("a", "the server `a` is not there"),
            failure("b", "the server `b` is not there"),
            failure("c", "the server `c` is slow"),
        ]);
        assert_eq!(note, "[Tools are missing: the server `a`, `b` is not there; the server `c` is slow]");
    }
}

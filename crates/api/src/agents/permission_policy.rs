//! The permission policy of tool calls, and the defaults of a toolset.

use serde::{Deserialize, Serialize};

use crate::RequestError;
use crate::common::input::ObjectInput;

/// Whether the calls of a tool need a confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PermissionPolicy {
    /// Each call is allowed.
    AlwaysAllow,
    /// Each call waits for a confirmation.
    AlwaysAsk,
}

/// The configuration of tools that have no entry of their own in a toolset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolsetDefault {
    /// Whether the model gets the tools.
    pub enabled: bool,
    /// Whether their calls need a confirmation.
    pub permission_policy: PermissionPolicy,
}

/// Reads the field `permission_policy`.
pub(crate) fn read_policy(object: &mut ObjectInput<'_>) -> Result<Option<PermissionPolicy>, RequestError> {
    let Some(input) = object.optional("permission_policy") else { return Ok(None) };
    input.read_object(|object| {
        let policy = object.kind(&[
            ("always_allow", Some(PermissionPolicy::AlwaysAllow)),
            ("always_ask", Some(PermissionPolicy::AlwaysAsk)),
            ("auto", None),
        ])?;
        let message = "this server does not support the policy `auto`; use `always_allow` or `always_ask`";
        policy.map(Some).ok_or_else(|| RequestError::new(object.path(), message))
    })
}

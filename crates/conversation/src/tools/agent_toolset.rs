//! [`AgentToolset`]: which tools of the toolset `agent_toolset_20260401` a session has, and which of their calls a person
//! decides on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A tool of the toolset, in the order in which the model gets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolsetTool {
    /// `bash`: runs commands in one shell, which keeps its state between calls.
    Bash,
    /// `read`: shows a file: text with line numbers, an image, a notebook.
    Read,
    /// `write`: writes a file.
    Write,
    /// `edit`: replaces text in a file.
    Edit,
    /// `glob`: finds files by name.
    Glob,
    /// `grep`: finds lines in files.
    Grep,
    /// `web_fetch`: gets the content of a URL.
    WebFetch,
}

impl ToolsetTool {
    /// All of them, in order.
    pub const ALL: [Self; 7] =
        [Self::Bash, Self::Read, Self::Write, Self::Edit, Self::Glob, Self::Grep, Self::WebFetch];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Read => "read",
            Self::Write => "write",
            Self::Edit => "edit",
            Self::Glob => "glob",
            Self::Grep => "grep",
            Self::WebFetch => "web_fetch",
        }
    }

    /// The tool of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }
}

/// Whether each call of a tool needs a person's decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionPolicy {
    /// Calls run without one, unless the embedder's approver decides otherwise.
    #[default]
    AlwaysAllow,
    /// Each call waits for a person's decision.
    AlwaysAsk,
}

/// The tools of the toolset `agent_toolset_20260401` that a session has, each with its policy. A session with a toolset
/// has none of the built-in tools `view`, `bash_tool`, `create_file` and `str_replace`.
///
/// ```
/// use conjure_conversation::{AgentToolset, PermissionPolicy, ToolsetTool};
///
/// let toolset = AgentToolset::all()
///     .without(ToolsetTool::WebFetch)
///     .with(ToolsetTool::Bash, PermissionPolicy::AlwaysAsk);
/// assert_eq!(toolset.policy(ToolsetTool::Bash), Some(PermissionPolicy::AlwaysAsk));
/// assert_eq!(toolset.policy(ToolsetTool::WebFetch), None);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentToolset {
    tools: BTreeMap<ToolsetTool, PermissionPolicy>,
}

impl AgentToolset {
    /// All tools, each with [`PermissionPolicy::AlwaysAllow`].
    #[must_use]
    pub fn all() -> Self {
        Self { tools: ToolsetTool::ALL.map(|tool| (tool, PermissionPolicy::default())).into() }
    }

    /// No tools.
    #[must_use]
    pub const fn none() -> Self {
        Self { tools: BTreeMap::new() }
    }

    /// With this tool under this policy.
    #[must_use]
    pub fn with(mut self, tool: ToolsetTool, policy: PermissionPolicy) -> Self {
        self.tools.insert(tool, policy);
        self
    }

    /// Without this tool.
    #[must_use]
    pub fn without(mut self, tool: ToolsetTool) -> Self {
        self.tools.remove(&tool);
        self
    }

    /// The policy of a tool; `None` if the session does not have it.
    #[must_use]
    pub fn policy(&self, tool: ToolsetTool) -> Option<PermissionPolicy> {
        self.tools.get(&tool).copied()
    }

    /// The tools, in order.
    pub fn tools(&self) -> impl Iterator<Item = ToolsetTool> + '_ {
        self.tools.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_form_is_small_and_never_changes() {
        let toolset = AgentToolset::none()
            .with(ToolsetTool::WebFetch, PermissionPolicy::AlwaysAsk)
            .with(ToolsetTool::Bash, PermissionPolicy::AlwaysAllow);
        let json = r#"{"bash":"always_allow","web_fetch":"always_ask"}"#;
        assert_eq!(serde_json::to_string(&toolset).unwrap(), json);
        assert_eq!(serde_json::from_str::<AgentToolset>(json).unwrap(), toolset);
    }

    #[test]
    fn tools_are_found_by_their_names_on_the_wire() {
        for tool in ToolsetTool::ALL {
            assert_eq!(ToolsetTool::from_name(tool.name()), Some(tool));
            assert_eq!(serde_json::to_value(tool).unwrap(), tool.name());
        }
        assert_eq!(ToolsetTool::from_name("bash_tool"), None);
        assert_eq!(AgentToolset::all().tools().collect::<Vec<_>>(), ToolsetTool::ALL);
    }
}

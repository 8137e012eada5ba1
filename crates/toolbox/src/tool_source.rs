//! [`ToolSource`]: tools that can change while a session lives, such as those of MCP servers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use conjure_conversation::ToolDefinition;

use crate::definition_check::check_definition;
use crate::tool::Tool;

/// Tools that can change between two model calls.
pub trait ToolSource: Send + Sync {
    /// Returns the current tools. It returns the same value as before as long as nothing has changed. It must not block.
    fn tools(&self) -> Arc<SourcedTools>;
}

/// The tools of a [`ToolSource`] at one moment.
#[derive(Default)]
pub struct SourcedTools {
    tools: BTreeMap<String, Arc<dyn Tool>>,
    offered: Vec<ToolDefinition>,
}

impl SourcedTools {
    /// Creates a set of tools whose definitions the model gets. It skips a tool whose name or schema a model service would refuse,
    /// because that tool would make every request fail. It also skips a second tool with the same name. Each skipped tool is
    /// logged.
    #[must_use]
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let mut all = Self::default();
        for tool in tools {
            if let Some(definition) = all.insert(tool) {
                all.offered.push(definition);
            }
        }
        all.offered.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Adds tools that can be called although the model does not get their definitions.
    #[must_use]
    pub fn with_hidden(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        for tool in tools {
            self.insert(tool);
        }
        self
    }

    fn insert(&mut self, tool: Arc<dyn Tool>) -> Option<ToolDefinition> {
        let definition = tool.definition();
        let definition = match check_definition(definition) {
            Ok(definition) if !self.tools.contains_key(&definition.name) => definition,
            Ok(definition) => {
                tracing::warn!(tool = definition.name, "a tool is left out: another tool has its name");
                return None;
            }
            Err(error) => {
                tracing::warn!(%error, "a tool is left out");
                return None;
            }
        };
        self.tools.insert(definition.name.clone(), tool);
        Some(definition)
    }

    /// The tool of this name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.get(name).cloned()
    }

    /// The definitions for the model, sorted by name.
    #[must_use]
    pub fn offered(&self) -> &[ToolDefinition] {
        &self.offered
    }
}

impl fmt::Debug for SourcedTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourcedTools").field("tools", &self.tools.keys()).finish_non_exhaustive()
    }
}

//! [`ToolSource`]: tools that come and go while a session lives, such as those of MCP servers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use conjure_conversation::ToolDefinition;

use crate::definition_check::check_definition;
use crate::tool::Tool;

/// Tools that can change between two model calls.
pub trait ToolSource: Send + Sync {
    /// The tools as they are now. It returns the same value as before as long as nothing has changed. It must not block.
    fn tools(&self) -> Arc<SourcedTools>;
}

/// The tools of a [`ToolSource`] at one moment.
#[derive(Default)]
pub struct SourcedTools {
    tools: BTreeMap<String, Arc<dyn Tool>>,
    offered: Vec<ToolDefinition>,
}

impl SourcedTools {
    /// These tools, which the model is told about. A tool with a name or schema that a model service would refuse is left out with a
    /// log entry, because it would make every request fail. Of two tools with one name, the first stays.
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

    /// Adds tools that can be called although their definitions are not sent to the model.
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

    /// The definitions for the model, by name.
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

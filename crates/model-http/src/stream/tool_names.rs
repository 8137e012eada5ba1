//! [`ToolNames`]: the tool names that a request writes in another form, because the service does not accept them.

use std::borrow::Cow;
use std::collections::HashMap;

use conjure_conversation::ToolDefinition;

/// The mapped tool names of one request, by which the names in its answer are mapped back.
#[derive(Debug, Clone, Default)]
pub struct ToolNames {
    /// The tool's own name by its name on the wire, only for names that differ.
    by_wire_name: HashMap<String, String>,
}

impl ToolNames {
    /// Creates the map for these tools. `wire_name` gives a name in the form that the service accepts.
    #[must_use]
    pub fn new(tools: &[ToolDefinition], wire_name: fn(&str) -> Cow<'_, str>) -> Self {
        let mapped = tools.iter().filter_map(|tool| match wire_name(&tool.name) {
            Cow::Owned(wire) => Some((wire, tool.name.clone())),
            Cow::Borrowed(_) => None,
        });
        Self { by_wire_name: mapped.collect() }
    }

    /// The tool's own name, by the name in an answer. A name that is not mapped is returned unchanged.
    #[must_use]
    pub fn own_name<'n>(&'n self, wire: &'n str) -> &'n str {
        self.by_wire_name.get(wire).map_or(wire, String::as_str)
    }
}

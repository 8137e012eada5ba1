//! [`SearchTool`]: searches tools whose definitions are not sent to the model because there are too many.

use std::collections::BTreeSet;
use std::sync::Weak;

use conjure_conversation::{CallConcurrency, CallTraits, ToolDefinition};
use conjure_toolbox::{Tool, ToolContext, ToolOutput};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

/// The name of the tool.
pub(in crate::client) const SEARCH_TOOL: &str = "mcp_search_tools";

/// The maximum number of tools that one search adds.
const MAX_FOUND: usize = 8;

/// The tools that a search can find.
pub(in crate::client) trait HiddenTools: Send + Sync {
    /// The definitions of all tools.
    fn all_definitions(&self) -> Vec<ToolDefinition>;

    /// Sends the definitions of these tools from the next model call on.
    fn offer(&self, names: Vec<String>);
}

/// Searches tools by words. The model can call the found tools from the next model call on.
pub(in crate::client) struct SearchTool {
    pub(in crate::client) tools: Weak<dyn HiddenTools>,
    /// The servers and the numbers of their tools.
    pub(in crate::client) servers: Vec<(String, usize)>,
}

impl Tool for SearchTool {
    fn definition(&self) -> ToolDefinition {
        let total: usize = self.servers.iter().map(|(_, count)| count).sum();
        let servers: Vec<String> =
            self.servers.iter().map(|(name, count)| format!("{name} ({count})")).collect();
        ToolDefinition {
            name: SEARCH_TOOL.to_owned(),
            description: format!(
                "Finds tools of MCP servers. There are {total} tools, of these servers: {}. Their definitions are not shown until a \
                 search finds them; then they can be called. Search with the words of what you want to do.",
                servers.join(", ")
            ),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "Words that describe the tool, or a part of its name."}
                },
                "required": ["query"]
            }),
        }
    }

    fn traits(&self) -> CallTraits {
        CallTraits { concurrency: CallConcurrency::Shared, idempotent: true }
    }

    fn call(&self, input: Value, _: ToolContext) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            let Some(query) = input.get("query").and_then(Value::as_str) else {
                return ToolOutput::error("bad input: `query` must be a text");
            };
            let Some(tools) = self.tools.upgrade() else {
                return ToolOutput::error("the session has ended");
            };
            let all = tools.all_definitions();
            let found = find(query, &all);
            if found.is_empty() {
                return ToolOutput::text(
                    "No tool fits these words. Try other words, or the name of a server.",
                );
            }
            let lines: Vec<String> = found
                .iter()
                .map(|tool| {
                    let first = tool.description.lines().next().unwrap_or_default();
                    format!("- {}: {}", tool.name, conjure_base::text::truncate(first, 200))
                })
                .collect();
            tools.offer(found.iter().map(|tool| tool.name.clone()).collect());
            ToolOutput::text(format!("These tools can be called from now on:\n{}", lines.join("\n")))
        })
    }
}

/// The tools that match these words best. A word in the name counts more than a word in the description.
fn find<'d>(query: &str, tools: &'d [ToolDefinition]) -> Vec<&'d ToolDefinition> {
    let words: BTreeSet<String> = query
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() > 1)
        .map(str::to_lowercase)
        .collect();
    let score = |tool: &ToolDefinition| -> usize {
        let (name, description) = (tool.name.to_lowercase(), tool.description.to_lowercase());
        words
            .iter()
            .map(|word| 3 * usize::from(name.contains(word)) + usize::from(description.contains(word)))
            .sum()
    };
    let mut scored: Vec<(usize, &ToolDefinition)> =
        tools.iter().map(|tool| (score(tool), tool)).filter(|(score, _)| *score > 0).collect();
    scored.sort_by(|(one, a), (other, b)| other.cmp(one).then_with(|| a.name.cmp(&b.name)));
    scored.into_iter().take(MAX_FOUND).map(|(_, tool)| tool).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_counts_more_than_the_description() {
        let tool = |name: &str, description: &str| ToolDefinition {
            name: name.to_owned(),
            description: description.to_owned(),
            input_schema: json!({"type": "object"}),
        };
        let tools = [
            tool("mcp__mail__send", "Sends a message."),
            tool("mcp__git__commit", "Records changes with a message."),
            tool("mcp__chat__message_list", "Lists."),
        ];
        let names =
            |query: &str| find(query, &tools).iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names("message"), ["mcp__chat__message_list", "mcp__git__commit", "mcp__mail__send"]);
        assert_eq!(
            names("send a MESSAGE"),
            ["mcp__mail__send", "mcp__chat__message_list", "mcp__git__commit"]
        );
        assert!(names("a ! ?").is_empty() && names("").is_empty());
    }
}

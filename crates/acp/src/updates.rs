//! Converts events of a session to updates for the editor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{
    Content, ContentBlock, ContentChunk, Diff, SessionUpdate, TextContent, ToolCall, ToolCallContent,
    ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use conjure_conversation::{Block, SessionEventKind, ToolProgress};
use conjure_toolbox::call_text::{bound_lines, input_lines, printable, truncate_middle};
use serde_json::Value;

/// The path of the workspace inside a sandbox.
const WORKSPACE: &str = "/workspace";

/// The maximum length of a tool result's text in an update, in characters.
const MAX_TEXT: usize = 64 << 10;

/// The maximum width of a title, in columns.
const MAX_TITLE: usize = 120;

/// An update with a part of the agent's message.
pub(crate) fn message(text: impl Into<String>) -> SessionUpdate {
    SessionUpdate::AgentMessageChunk(chunk(text))
}

/// An update with a part of the agent's thinking.
pub(crate) fn thought(text: impl Into<String>) -> SessionUpdate {
    SessionUpdate::AgentThoughtChunk(chunk(text))
}

/// An update with the progress of a running tool call.
pub(crate) fn progress(progress: &ToolProgress) -> SessionUpdate {
    let text = ContentBlock::Text(TextContent::new(progress.to_string()));
    let fields = ToolCallUpdateFields::new().content(vec![ToolCallContent::Content(Content::new(text))]);
    SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(progress.call_id.as_str().to_owned(), fields))
}

fn chunk(text: impl Into<String>) -> ContentChunk {
    ContentChunk::new(ContentBlock::Text(TextContent::new(text.into())))
}

/// The text that the editor has received as previews, by the index of its block in the response.
///
/// Previews can be incomplete: some are lost if the editor is slow, and the end of a text is held back if it may be the beginning of a
/// secret. So the rest is sent when the text is recorded.
#[derive(Debug, Default)]
pub(crate) struct ShownText(BTreeMap<usize, String>);

impl ShownText {
    /// Adds a preview.
    pub(crate) fn add(&mut self, index: usize, text: &str) {
        self.0.entry(index).or_default().push_str(text);
    }

    /// What the editor has not received of the next text. If previews were lost in its middle, it is sent again as a whole.
    fn rest_of(&mut self, text: String) -> Option<String> {
        if text.is_empty() {
            return None;
        }
        let found = self.0.iter().find(|(_, shown)| !shown.is_empty() && text.starts_with(shown.as_str()));
        let Some(first) = found.map(|(index, _)| *index) else {
            return Some(if self.0.is_empty() { text } else { format!("\n\n{text}") });
        };
        self.0 = self.0.split_off(&first);
        let (_, shown) = self.0.pop_first()?;
        let mut rest = text.strip_prefix(shown.as_str())?;
        // The parts of one thought have previews of their own.
        while let Some(after) = self.0.first_key_value().and_then(|(_, next)| {
            rest.strip_prefix("\n\n")?.strip_prefix(next.as_str()).filter(|_| !next.is_empty())
        }) {
            self.0.pop_first();
            rest = after;
        }
        Some(rest.to_owned()).filter(|rest| !rest.is_empty())
    }
}

/// The updates for a recorded event. Of a running turn, `shown` is the text that the editor has received as previews, so it is left out. A
/// history has no previews, and includes the user's messages.
pub(crate) fn of_event(
    event: &SessionEventKind,
    cwd: &Path,
    shown: Option<&mut ShownText>,
) -> Vec<SessionUpdate> {
    match (event, shown) {
        (SessionEventKind::UserMessage { content, .. }, None) => {
            texts(content).into_iter().map(|text| SessionUpdate::UserMessageChunk(chunk(text))).collect()
        }
        (SessionEventKind::AgentMessage { content }, None) => {
            texts(content).into_iter().map(message).collect()
        }
        (SessionEventKind::AgentMessage { content }, Some(shown)) => {
            texts(content).into_iter().filter_map(|text| shown.rest_of(text)).map(message).collect()
        }
        (SessionEventKind::AgentThinking { thinking }, None) => vec![thought(thinking.as_str())],
        (SessionEventKind::AgentThinking { thinking }, Some(shown)) => {
            shown.rest_of(thinking.clone()).map(thought).into_iter().collect()
        }
        (event, _) => of_tool_event(event, cwd),
    }
}

fn of_tool_event(event: &SessionEventKind, cwd: &Path) -> Vec<SessionUpdate> {
    match event {
        SessionEventKind::ToolServerFailed { failure } => vec![thought(format!("{}\n\n", failure.reason))],
        SessionEventKind::AgentToolUse { call_id, name, input, .. } => {
            let input: Value = serde_json::from_str(input.get()).unwrap_or(Value::Null);
            vec![SessionUpdate::ToolCall(tool_call(call_id.as_str(), name, input, cwd))]
        }
        SessionEventKind::AgentToolResult { call_id, result, is_error, .. } => {
            let status = if *is_error { ToolCallStatus::Failed } else { ToolCallStatus::Completed };
            let fields = ToolCallUpdateFields::new().status(status);
            // The text is empty if the editor already showed the change as a diff.
            let text = result_text(result);
            let fields = if text.is_empty() { fields } else { fields.raw_output(Value::from(text)) };
            vec![SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call_id.as_str().to_owned(), fields))]
        }
        _ => Vec::new(),
    }
}

/// A tool call in the editor's form.
pub(crate) fn tool_call(id: &str, name: &str, input: Value, cwd: &Path) -> ToolCall {
    let text = |key: &str| input.get(key).and_then(Value::as_str);
    let path = text("path").or_else(|| text("file_path")).map(|path| on_host(path, cwd));
    let line = |text: &str| truncate_middle(&printable(text), MAX_TITLE).into_owned();
    let title = match (name, text("command"), text("path").or_else(|| text("file_path"))) {
        (_, Some(command), _) => format!("`{}`", line(command.trim())),
        (name, None, Some(path)) => line(&format!("{name} {path}")),
        (name, None, None) => line(name),
    };
    let diff = path.as_ref().and_then(|path| {
        let new = text("file_text")
            .or_else(|| text("content"))
            .or_else(|| text("new_str"))
            .or_else(|| text("new_string"))?;
        let old = text("old_str").or_else(|| text("old_string")).map(str::to_owned);
        Some(ToolCallContent::Diff(Diff::new(path.clone(), new).old_text(old)))
    });
    let description = text("description").filter(|_| diff.is_none()).map(|text| {
        ToolCallContent::Content(Content::new(ContentBlock::Text(TextContent::new(text.to_owned()))))
    });
    let content: Vec<ToolCallContent> = diff.into_iter().chain(description).collect();
    let locations = path.into_iter().map(ToolCallLocation::new).collect();
    ToolCall::new(id.to_owned(), title)
        .name(name.to_owned())
        .kind(kind(name))
        .status(ToolCallStatus::InProgress)
        .content(content)
        .locations(locations)
        .raw_input(input)
}

/// The content of a question about a call: the change of a file, and the whole input. An input that is too long to be seen is shortened in
/// its middle. The model's own description is in it as one field of several.
pub(crate) fn question_content(call: &ToolCall) -> Vec<ToolCallContent> {
    let input = call.raw_input.as_ref().unwrap_or(&Value::Null);
    let text = bound_lines(&input_lines(input, str::to_owned)).join("\n");
    // The editor shows Markdown, so the input is in a code block that it cannot end.
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    let text = ContentBlock::Text(TextContent::new(format!("{fence}\n{text}\n{fence}")));
    let diff = call.content.iter().filter(|content| matches!(content, ToolCallContent::Diff(_)));
    diff.cloned().chain([ToolCallContent::Content(Content::new(text))]).collect()
}

fn kind(name: &str) -> ToolKind {
    match name {
        "view" | "read" | "skills_read" => ToolKind::Read,
        "create_file" | "str_replace" | "write" | "edit" => ToolKind::Edit,
        "bash" | "bash_tool" | "skills_run_script" => ToolKind::Execute,
        "glob" | "grep" | "mcp_search_tools" => ToolKind::Search,
        "web_fetch" => ToolKind::Fetch,
        _ => ToolKind::Other,
    }
}

/// Converts a path in the sandbox to the path on this machine.
fn on_host(path: &str, cwd: &Path) -> PathBuf {
    match Path::new(path).strip_prefix(WORKSPACE) {
        Ok(rest) => cwd.join(rest),
        // Any other path is resolved against the editor's directory. An absolute path stays unchanged.
        Err(_) => cwd.join(path),
    }
}

fn texts(content: &[Block]) -> Vec<String> {
    let text = |block: &Block| {
        let block = serde_json::to_value(block).ok()?;
        Some(block.get("text")?.as_str()?.to_owned())
    };
    content.iter().filter_map(text).collect()
}

/// The text of a `tool_result` block.
fn result_text(result: &Block) -> String {
    let Ok(block) = serde_json::to_value(result) else { return String::new() };
    let text = match block.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    };
    conjure_base::text::truncate(&text, MAX_TEXT).into_owned()
}

#[cfg(test)]
mod tests {
    use conjure_base::CallId;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_previews_left_out_is_sent_when_the_text_is_recorded() {
        let mut shown = ShownText::default();
        for (index, text) in [(0, "Let me "), (0, "see."), (2, "The key i"), (4, "lost"), (5, "all")] {
            shown.add(index, text);
        }
        let mut rest = |text: &str| shown.rest_of(text.to_owned());
        assert_eq!(rest(""), None, "a block without text has no preview");
        assert_eq!(rest("Let me see."), None);
        assert_eq!(rest("The key is"), Some("s".to_owned()));
        assert_eq!(rest("was lost"), Some("\n\nwas lost".to_owned()));
        assert_eq!(rest("all"), None);
        assert_eq!(rest("not shown"), Some("not shown".to_owned()));
        for (index, text) in [(0, "One part."), (1, "Another part."), (2, "The answer")] {
            shown.add(index, text);
        }
        assert_eq!(shown.rest_of("One part.\n\nAnother part.".to_owned()), None);
        assert_eq!(shown.rest_of("The answer.".to_owned()), Some(".".to_owned()));
    }

    #[test]
    fn progress_is_content_of_the_call() {
        let message = "copying".to_owned();
        let told = ToolProgress { call_id: CallId::new("toolu_1"), done: 3.0, total: Some(10.0), message };
        let update = serde_json::to_value(progress(&told)).unwrap();
        assert_eq!(update["toolCallId"], "toolu_1");
        assert_eq!(update["content"][0]["content"]["text"], "3 of 10: copying");
        assert_eq!(update.get("status"), None);
    }

    #[test]
    fn an_edit_is_a_diff_at_its_place_on_this_machine() {
        let input =
            json!({"path": "/workspace/src/a.rs", "old_str": "a", "new_str": "b", "description": "Rename"});
        let call = tool_call("toolu_1", "str_replace", input, Path::new("/home/ada/app"));
        let shown = serde_json::to_value(&call).unwrap();
        assert_eq!(shown["kind"], "edit");
        let path = "/home/ada/app/src/a.rs";
        assert_eq!(shown["content"], json!([{"type": "diff", "path": path, "oldText": "a", "newText": "b"}]));
        assert_eq!(shown["locations"], json!([{"path": path}]));
    }

    #[test]
    fn a_question_shows_the_whole_input_and_not_what_the_model_says_of_it() {
        let command = format!("echo ```\nrm x{}echo \u{202e}", " ".repeat(200_000));
        let input = json!({"command": command, "description": "# Harmless"});
        let content = question_content(&tool_call("toolu_1", "bash_tool", input, Path::new("/w")));
        let shown = serde_json::to_value(&content).unwrap();
        let text = shown[0]["content"]["text"].as_str().unwrap();
        assert!(text.starts_with("````\necho ```\nrm x ") && text.ends_with("\n````"), "{text}");
        assert!(text.contains("echo \\u{202e}\ndescription: # Harmless\n"), "{text}");
        assert!(text.len() < 2000 && shown.as_array().unwrap().len() == 1, "{text}");
        let input = json!({"path": "a", "old_str": "a", "new_str": "b", "more": 1});
        let content = question_content(&tool_call("toolu_1", "str_replace", input, Path::new("/w")));
        let shown = serde_json::to_value(&content).unwrap();
        assert_eq!(shown[0]["type"], "diff");
        // The order of the other fields depends on a feature of `serde_json`.
        let mut lines: Vec<&str> = shown[1]["content"]["text"].as_str().unwrap().lines().collect();
        assert_eq!((lines.len(), lines[0], lines[1]), (6, "```", "path: a"));
        lines[1..5].sort_unstable();
        assert_eq!(lines[1..], ["more: 1", "new_str: b", "old_str: a", "path: a", "```"]);
    }

    #[test]
    fn a_command_is_its_own_title() {
        let input = json!({"command": "cargo test\n", "description": "Run the tests"});
        let call = tool_call("toolu_1", "bash_tool", input, Path::new("/w"));
        assert_eq!((call.title.as_str(), call.kind), ("`cargo test`", ToolKind::Execute));
        let hidden = format!("ls \u{202e}; rm -rf x{}echo hello", " ".repeat(5000));
        let title = tool_call("toolu_1", "bash_tool", json!({"command": hidden}), Path::new("/w")).title;
        assert!(title.starts_with("`ls \\u{202e}; rm -rf x ") && title.ends_with(" echo hello`"), "{title}");
        assert!(title.len() < 200, "{title}");
        let other = tool_call("toolu_2", "mcp__git__log", json!({}), Path::new("/w"));
        assert_eq!((other.title.as_str(), other.kind), ("mcp__git__log", ToolKind::Other));
    }
}

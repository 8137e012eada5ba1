//! A view of a request: what scripts check, quote and compare.

use std::cell::OnceCell;

use conjure_base::{ContainerId, Digest};
use serde::Serialize;

use crate::content::block::BlockKind;
use crate::content::message::{Message, Role};
use crate::model::Request;
use crate::session::hosted::HostedSkill;
use crate::tools::tool::ToolDefinition;

/// The digest of a request: instructions, tools, messages, container and hosted skills, as one canonical JSON text.
///
/// The numbers of the turn and the call are left out, so two runs of the same conversation have equal digests.
#[must_use]
pub fn request_digest(request: &Request) -> Digest {
    #[derive(Serialize)]
    struct Body<'r> {
        instructions: &'r [String],
        tools: &'r [ToolDefinition],
        messages: Vec<&'r Message>,
        #[serde(skip_serializing_if = "Option::is_none")]
        container: Option<&'r ContainerId>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        hosted: &'r [HostedSkill],
    }
    let body = Body {
        instructions: &request.instructions,
        tools: &request.tools,
        messages: request.messages.iter().map(AsRef::as_ref).collect(),
        container: request.container.as_ref(),
        hosted: &request.hosted,
    };
    #[expect(clippy::expect_used, reason = "texts, values and raw JSON always serialise")]
    let bytes = serde_json::to_vec(&body).expect("a request serialises");
    Digest::of_bytes(&bytes)
}

/// A reference to a tool result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResultRef {
    /// The last one in the history.
    Last,
    /// The result of the call with this id.
    Id(String),
}

impl ResultRef {
    /// `last`, or a call's id.
    pub(super) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        if text == "last" { Self::Last } else { Self::Id(text) }
    }
}

/// A tool result in the history.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolResultView<'r> {
    /// The id of its call.
    pub(super) id: &'r str,
    /// Its text.
    pub(super) text: &'r str,
    /// Whether the call failed.
    pub(super) is_error: bool,
}

/// A skill in the list of the instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SkillView {
    /// Its name.
    pub(super) name: String,
    /// The path of its `SKILL.md`; empty if the instructions have none.
    pub(super) location: String,
}

/// A view of one request.
pub(super) struct RequestView<'r> {
    request: &'r Request,
    system: OnceCell<String>,
}

impl<'r> RequestView<'r> {
    /// The view of this request.
    pub(super) const fn new(request: &'r Request) -> Self {
        Self { request, system: OnceCell::new() }
    }

    /// The request itself.
    pub(super) const fn request(&self) -> &'r Request {
        self.request
    }

    /// The instructions, joined by blank lines.
    pub(super) fn system(&self) -> &str {
        self.system.get_or_init(|| self.request.instructions.join("\n\n"))
    }

    /// The text of the last user message that has text.
    pub(super) fn user(&self) -> Option<String> {
        self.user_messages().map(Message::text).find(|text| !text.is_empty())
    }

    /// The result for this reference.
    pub(super) fn result(&self, which: &ResultRef) -> Option<ToolResultView<'r>> {
        self.results().find(|result| match which {
            ResultRef::Last => true,
            ResultRef::Id(id) => result.id == id,
        })
    }

    /// All results, the last one first.
    pub(super) fn results(&self) -> impl Iterator<Item = ToolResultView<'r>> {
        self.user_messages().flat_map(|message| message.content.iter().rev()).filter_map(|block| match block
            .kind()
        {
            BlockKind::ToolResult { tool_use_id, is_error, text } => {
                Some(ToolResultView { id: tool_use_id, text, is_error: *is_error })
            }
            _ => None,
        })
    }

    /// The skills in the list of the instructions, in order.
    pub(super) fn skills(&self) -> Vec<SkillView> {
        listed_skills(self.system())
    }

    /// The user's messages, the last one first.
    fn user_messages(&self) -> impl Iterator<Item = &'r Message> {
        self.request.messages.iter().rev().map(AsRef::as_ref).filter(|message| message.role == Role::User)
    }
}

/// Parses the skills of the `<available_skills>` block.
fn listed_skills(instructions: &str) -> Vec<SkillView> {
    let mut skills = Vec::new();
    let mut rest = instructions;
    while let Some((_, after)) = rest.split_once("<skill>") {
        let Some((skill, after)) = after.split_once("</skill>") else { break };
        rest = after;
        if let Some(name) = element(skill, "name") {
            skills.push(SkillView { name, location: element(skill, "location").unwrap_or_default() });
        }
    }
    skills
}

/// The text between `<tag>` and `</tag>`, trimmed and unescaped.
fn element(xml: &str, tag: &str) -> Option<String> {
    let (_, after) = xml.split_once(&format!("<{tag}>"))?;
    let (text, _) = after.split_once(&format!("</{tag}>"))?;
    Some(unescape(text.trim()))
}

/// Replaces the entities that the prompt uses. `&amp;` comes last, so that its result is not replaced again.
fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#x27;", "'")
        .replace("&#39;", "'")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

/// The maximum length of a text in an error, in characters.
const MAX_CHARS: usize = 240;

/// Shortens a text for an error message: quoted, on one line, without the middle of a long one.
pub(super) fn shorten(text: &str) -> String {
    let count = text.chars().count();
    if count <= MAX_CHARS {
        return format!("{text:?}");
    }
    let head: String = text.chars().take(MAX_CHARS / 2).collect();
    let tail: String = text.chars().skip(count - MAX_CHARS / 2).collect();
    format!("{head:?} … {tail:?} ({count} characters)")
}

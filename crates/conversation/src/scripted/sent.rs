//! A view of what a model call was sent: what scripts expect, quote and compare.

use std::cell::OnceCell;

use conjure_base::{ContainerId, Digest};
use serde::Serialize;

use crate::content::BlockKind;
use crate::hosted::HostedSkill;
use crate::message::{Message, Role};
use crate::model::Request;
use crate::tool::ToolDefinition;

/// The digest of what a request sends: instructions, tools, messages, container and hosted skills, in one canonical JSON text. Which turn
/// and call it belongs to is left out, so that two runs of the same conversation have equal digests.
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
    Digest::of(&bytes)
}

/// Which tool result is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResultRef {
    /// The last one in the history.
    Last,
    /// The one that answers the call with this id.
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
pub(super) struct SentResult<'r> {
    /// The call that it answers.
    pub(super) id: &'r str,
    /// Its text.
    pub(super) text: &'r str,
    /// Whether the call failed.
    pub(super) is_error: bool,
}

/// A skill that the instructions list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedSkill {
    /// Its name.
    pub(super) name: String,
    /// The path of its `SKILL.md`; empty where the instructions give none.
    pub(super) location: String,
}

/// What one call was sent.
pub(super) struct Sent<'r> {
    request: &'r Request,
    system: OnceCell<String>,
}

impl<'r> Sent<'r> {
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

    /// The text of the last user message that has any; messages of results alone have none.
    pub(super) fn user(&self) -> Option<String> {
        self.user_messages().map(Message::text).find(|text| !text.is_empty())
    }

    /// The result that `which` names.
    pub(super) fn result(&self, which: &ResultRef) -> Option<SentResult<'r>> {
        self.results().find(|result| match which {
            ResultRef::Last => true,
            ResultRef::Id(id) => result.id == id,
        })
    }

    /// All results, the last one first.
    pub(super) fn results(&self) -> impl Iterator<Item = SentResult<'r>> {
        self.user_messages().flat_map(|message| message.content.iter().rev()).filter_map(|block| match block
            .kind()
        {
            BlockKind::ToolResult { tool_use_id, is_error, text } => {
                Some(SentResult { id: tool_use_id, text, is_error: *is_error })
            }
            _ => None,
        })
    }

    /// The skills that the instructions list, in their order.
    pub(super) fn skills(&self) -> Vec<ListedSkill> {
        listed_skills(self.system())
    }

    /// The user's messages, the last one first.
    fn user_messages(&self) -> impl Iterator<Item = &'r Message> {
        self.request.messages.iter().rev().map(AsRef::as_ref).filter(|message| message.role == Role::User)
    }
}

/// The skills of the `<available_skills>` block. Values stand between their tags, on lines of their own or not.
fn listed_skills(instructions: &str) -> Vec<ListedSkill> {
    let mut skills = Vec::new();
    let mut rest = instructions;
    while let Some((_, after)) = rest.split_once("<skill>") {
        let Some((skill, after)) = after.split_once("</skill>") else { break };
        rest = after;
        if let Some(name) = element(skill, "name") {
            skills.push(ListedSkill { name, location: element(skill, "location").unwrap_or_default() });
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

/// Replaces the five references that the prompt's writer uses. `&amp;` comes last: what it yields is final.
fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#x27;", "'")
        .replace("&#39;", "'")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

/// At most so many characters of a text are shown in an error.
const SHOWN: usize = 240;

/// A text for an error message: quoted, on one line, its middle left out when it is long.
pub(super) fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= SHOWN {
        return format!("{text:?}");
    }
    let head: String = text.chars().take(SHOWN / 2).collect();
    let tail: String = text.chars().skip(count - SHOWN / 2).collect();
    format!("{head:?} … {tail:?} ({count} characters)")
}

//! [`ParsedCall`]: a tool call whose tool is known and whose input is checked.

use std::sync::Arc;

use conjure_conversation::ToolCall;
use conjure_prompt::{BuiltinTool, SkillTool};
use conjure_sandbox::Executor;
use serde_json::{Map, Value};

use super::Toolbox;
use crate::agent_toolset::{Toolset, ToolsetCall};
use crate::builtin::BuiltinCall;
use crate::skills::{SkillRequest, SkillTools};
use crate::text::quote;
use crate::tool::Tool;
use crate::tool_input::json_kind;

/// A tool call after parsing, before it runs.
pub(super) enum ParsedCall<'t> {
    Builtin(&'t dyn Executor, BuiltinCall),
    Toolset(&'t Toolset, ToolsetCall),
    Skill(&'t SkillTools, SkillRequest),
    Host(Arc<dyn Tool>, Value),
    /// The client provides its result.
    Client,
    /// It cannot run, for this reason.
    Rejected(String),
}

impl Toolbox {
    /// Finds the tool of a call and parses its input.
    pub(super) fn parse(&self, call: &ToolCall) -> ParsedCall<'_> {
        let builtin = BuiltinTool::from_name(&call.name).and_then(|tool| {
            Some((tool, self.sandbox.as_ref().filter(|sandbox| sandbox.tools.contains(&tool))?))
        });
        // Only the name on the wire counts, because approvers know the tool by it.
        let skill = SkillTool::from_wire_name(&call.name).and_then(|tool| {
            Some((tool, self.skills.as_ref().filter(|skills| skills.tools.contains(&tool))?))
        });
        let toolset_match =
            self.toolset.as_ref().and_then(|toolset| Some((toolset.find(&call.name)?, toolset)));
        let is_client = self.client.contains(&call.name);
        let is_builtin = builtin.is_some() || toolset_match.is_some() || skill.is_some() || is_client;
        let host = self.host.get(&call.name).cloned();
        let host = if is_builtin { host } else { host.or_else(|| self.sourced_tool(&call.name)) };
        if !is_builtin && host.is_none() {
            return ParsedCall::Rejected(self.unknown_tool(&call.name));
        }
        let rejected =
            |reason: String| ParsedCall::Rejected(format!("bad input for `{}`: {reason}", call.name));
        let input = match self.read_input(call) {
            Ok(input) => input,
            Err(reason) => return rejected(reason),
        };
        if let Some((tool, skills)) = skill {
            return match SkillRequest::parse(tool, &input, &skills.skills) {
                Ok(request) => ParsedCall::Skill(&skills.skills, request),
                Err(reason) => rejected(reason),
            };
        }
        if let Some((tool, toolset)) = toolset_match {
            return match ToolsetCall::parse(tool, &input) {
                Ok(request) => ParsedCall::Toolset(toolset, request),
                Err(reason) => rejected(reason),
            };
        }
        match (builtin, host) {
            (Some((tool, sandbox)), _) => match BuiltinCall::parse(tool, &input) {
                Ok(request) => ParsedCall::Builtin(&*sandbox.executor, request),
                Err(reason) => rejected(reason),
            },
            (None, Some(tool)) if input.is_object() => ParsedCall::Host(tool, input),
            (None, None) if input.is_object() => ParsedCall::Client,
            (None, _) => rejected(format!("the input must be an object, not {}", json_kind(&input))),
        }
    }

    fn read_input(&self, call: &ToolCall) -> Result<Value, String> {
        let json = call.input.get();
        if json.len() > self.limits.input {
            return Err(format!(
                "it has {} bytes, and the maximum is {}: do it in smaller steps",
                json.len(),
                self.limits.input
            ));
        }
        if let Some(written) = call.invalid_input() {
            let reason = serde_json::from_str::<Map<String, Value>>(&written).err();
            let reason = reason.map_or_else(String::new, |error| format!(" ({error})"));
            return Err(format!(
                "it is not a JSON object{reason}, so nothing was done: write it again. It was: {}",
                quote(&written)
            ));
        }
        serde_json::from_str(json).map_err(|error| format!("it cannot be read: {error}"))
    }

    fn unknown_tool(&self, name: &str) -> String {
        if let Some(tool) = SkillTool::from_name(name) {
            let wire = tool.name();
            if self.definitions.iter().any(|tool| tool.name == wire) {
                return format!("there is no tool `{}`; here it is called `{wire}`", quote(name));
            }
        }
        let known: Vec<String> =
            self.current_definitions().iter().map(|tool| format!("`{}`", tool.name)).collect();
        let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
        format!("there is no tool `{}`; the tools are: {known}", quote(name))
    }
}

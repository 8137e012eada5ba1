//! Replaces the artifact references in a tool call's inputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_artifact::ArtifactUri;
use conjure_conversation::Artifact;
use conjure_sandbox::CallOptions;
use serde_json::Value;

use super::Toolbox;
use super::parsed_call::ParsedCall;
use crate::agent_toolset::{Toolset, ToolsetCall, fetched};
use crate::artifacts::{ArtifactTools, CallArtifacts, EarlyResult, is_url};
use crate::builtin::BuiltinCall;
use crate::skills::SkillRequest;
use crate::skills::read::render_content;
use crate::text::quote;
use crate::tool::{Tool, ToolOutput};

/// A call after resolving its references.
pub(super) enum ResolvedCall<'t> {
    /// It runs; its commands get these environment variables.
    Run(ParsedCall<'t>, BTreeMap<String, String>),
    /// It does not run, because its result is already known.
    Finished(ToolOutput),
}

/// Whether a call fetches a URL that the model wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UrlAccess {
    /// It fetches none.
    None,
    /// It fetches one.
    Url,
}

impl ParsedCall<'_> {
    /// Whether the call fetches a URL that the model wrote.
    pub(super) fn url_access(&self) -> UrlAccess {
        let is_any = match self {
            Self::Toolset(_, ToolsetCall::WebFetch { .. }) => true,
            Self::Builtin(_, BuiltinCall::View { path, .. })
            | Self::Toolset(_, ToolsetCall::Read { path, .. })
            | Self::Skill(_, SkillRequest::Read { path, .. }) => is_url(path),
            Self::Skill(_, SkillRequest::RunScript(script)) => script.args.iter().any(|text| is_url(text)),
            Self::Host(tool, input) => texts(&**tool, input).any(is_url),
            _ => false,
        };
        if is_any { UrlAccess::Url } else { UrlAccess::None }
    }
}

/// The maximum number of bytes of a page that is fetched.
const MAX_FETCHED_BYTES: u64 = 10 << 20;

/// The result of a call that would change an artifact.
fn read_only(input: &str, reference: &str) -> EarlyResult {
    ToolOutput::error(format!(
        "the input `{input}` cannot be the reference `{}`, since artifacts are read-only\nhint: give a path in the \
         workspace, and copy there first what is to be changed",
        quote(reference)
    ))
}

/// The path inputs of an embedder's tool.
fn texts<'i>(tool: &'i dyn Tool, input: &'i Value) -> impl Iterator<Item = &'i str> {
    let fields = tool.path_inputs().iter().filter_map(|field| input.get(field));
    fields.flat_map(|value| match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        other => other.as_str().into_iter().collect::<Vec<_>>(),
    })
}

impl Toolbox {
    /// Resolves the references of a call.
    pub(super) async fn resolve_inputs<'t>(
        &'t self,
        prepared: ParsedCall<'t>,
        resolution: &mut CallArtifacts<'_>,
    ) -> Result<ResolvedCall<'t>, EarlyResult> {
        let environment = BTreeMap::new();
        Ok(match prepared {
            ParsedCall::Builtin(executor, BuiltinCall::View { path, range }) => {
                let path = if ArtifactUri::is_reference(&path) {
                    resolution.for_sandbox("path", &path, executor).await?
                } else {
                    path
                };
                // The path may be an artifact's path from the prompt.
                resolution.install_all(executor).await?;
                ResolvedCall::Run(
                    ParsedCall::Builtin(executor, BuiltinCall::View { path, range }),
                    environment,
                )
            }
            ParsedCall::Builtin(executor, BuiltinCall::Bash { command }) => {
                let environment = resolution.install_all(executor).await?;
                ResolvedCall::Run(ParsedCall::Builtin(executor, BuiltinCall::Bash { command }), environment)
            }
            ParsedCall::Builtin(
                _,
                BuiltinCall::CreateFile { path, .. } | BuiltinCall::StrReplace { path, .. },
            ) if ArtifactUri::is_reference(&path) => {
                return Err(read_only("path", &path));
            }
            ParsedCall::Toolset(toolset, call) => {
                return self.resolve_toolset(toolset, call, resolution).await;
            }
            ParsedCall::Skill(_, SkillRequest::Read { path, .. }) if ArtifactUri::is_reference(&path) => {
                let most = (self.limits.view as u64).max(self.limits.max_image_bytes());
                let bytes = resolution.content("path", &path, most).await?;
                ResolvedCall::Finished(render_content(&path, &bytes, None, &self.limits, &self.redactor))
            }
            ParsedCall::Skill(tools, SkillRequest::RunScript(mut script)) => {
                let Some(sandbox) = &self.sandbox else {
                    return Ok(ResolvedCall::Run(
                        ParsedCall::Skill(tools, SkillRequest::RunScript(script)),
                        environment,
                    ));
                };
                let executor = &*sandbox.executor;
                for (at, argument) in script.args.iter_mut().enumerate() {
                    if ArtifactUri::is_reference(argument) {
                        let input = format!("args[{at}]");
                        *argument = resolution.for_sandbox(&input, argument, executor).await?;
                    }
                }
                let environment = resolution.install_all(executor).await?;
                ResolvedCall::Run(ParsedCall::Skill(tools, SkillRequest::RunScript(script)), environment)
            }
            ParsedCall::Host(tool, mut input) => {
                for field in tool.path_inputs() {
                    if let Some(value) = input.get_mut(*field) {
                        resolution.resolve_in_value(field, value).await?;
                    }
                }
                ResolvedCall::Run(ParsedCall::Host(tool, input), environment)
            }
            other => ResolvedCall::Run(other, environment),
        })
    }

    /// Resolves the references of a call of the toolset.
    async fn resolve_toolset<'t>(
        &'t self,
        toolset: &'t Toolset,
        mut call: ToolsetCall,
        resolution: &mut CallArtifacts<'_>,
    ) -> Result<ResolvedCall<'t>, EarlyResult> {
        let mut environment = BTreeMap::new();
        match (&mut call, toolset.executor()) {
            (ToolsetCall::WebFetch { url }, _) => {
                let most = (self.limits.view as u64).max(MAX_FETCHED_BYTES);
                let bytes = resolution.content("url", url, most).await?;
                return Ok(ResolvedCall::Finished(fetched(url, &bytes, &self.limits, &self.redactor)));
            }
            (ToolsetCall::Read { path, .. }, Some(executor)) => {
                if ArtifactUri::is_reference(path) {
                    *path = resolution.for_sandbox("file_path", path, executor).await?;
                }
                // The path may be an artifact's path from the prompt.
                resolution.install_all(executor).await?;
            }
            (ToolsetCall::Bash(_) | ToolsetCall::Grep(_), Some(executor)) => {
                environment = resolution.install_all(executor).await?;
            }
            (call, _) => {
                if let Some(path) = call.path().filter(|path| ArtifactUri::is_reference(path)) {
                    return Err(read_only("file_path", path));
                }
            }
        }
        Ok(ResolvedCall::Run(ParsedCall::Toolset(toolset, call), environment))
    }

    /// Starts resolving the references of a call.
    pub(super) fn start_resolution<'c>(
        &'c self,
        tools: &'c ArtifactTools,
        artifacts: &'c [Arc<Artifact>],
        options: &CallOptions,
    ) -> CallArtifacts<'c> {
        tools.start_call(artifacts, &*self.clock, options.clone())
    }
}

//! The references in a call: which of its inputs may be some, and what takes their place.

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_artifact::ArtifactUri;
use conjure_conversation::Artifact;
use conjure_sandbox::CallOptions;
use serde_json::Value;

use super::{Prepared, Toolbox};
use crate::artifacts::{ArtifactTools, Gathering, Refused, is_url};
use crate::builtin::Request;
use crate::skills::SkillRequest;
use crate::skills::read::shown;
use crate::text::quote;
use crate::tool::{Tool, ToolOutcome};

/// What a call becomes once its references are resolved.
pub(super) enum Ready<'t> {
    /// It runs, and its commands have these variables.
    Runs(Prepared<'t>, BTreeMap<String, String>),
    /// It is done.
    Done(ToolOutcome),
}

/// Whether a call leads out of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetches {
    /// It does not.
    Nothing,
    /// It fetches a URL that the model has written.
    Url,
}

impl Prepared<'_> {
    /// Whether the call fetches a URL that the model has written.
    pub(super) fn fetches(&self) -> Fetches {
        let is_any = match self {
            Self::Builtin(_, Request::View { path, .. })
            | Self::Skill(_, SkillRequest::Read { path, .. }) => is_url(path),
            Self::Skill(_, SkillRequest::RunScript(script)) => script.args.iter().any(|text| is_url(text)),
            Self::Host(tool, input) => texts(*tool, input).any(is_url),
            _ => false,
        };
        if is_any { Fetches::Url } else { Fetches::Nothing }
    }
}

/// What a host's tool is given where it takes paths.
fn texts<'i>(tool: &'i dyn Tool, input: &'i Value) -> impl Iterator<Item = &'i str> {
    let fields = tool.path_inputs().iter().filter_map(|field| input.get(field));
    fields.flat_map(|value| match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        other => other.as_str().into_iter().collect::<Vec<_>>(),
    })
}

impl Toolbox {
    /// Resolves the references of a call.
    pub(super) async fn resolved<'t>(
        &'t self,
        prepared: Prepared<'t>,
        gathering: &mut Gathering<'_>,
    ) -> Result<Ready<'t>, Refused> {
        let environment = BTreeMap::new();
        Ok(match prepared {
            Prepared::Builtin(executor, Request::View { path, range }) => {
                let path = if ArtifactUri::is_reference(&path) {
                    gathering.for_sandbox("path", &path, executor).await?
                } else {
                    path
                };
                // It may be a path that the prompt tells.
                gathering.lay_out(executor).await?;
                Ready::Runs(Prepared::Builtin(executor, Request::View { path, range }), environment)
            }
            Prepared::Builtin(executor, Request::Bash { command }) => {
                let environment = gathering.lay_out(executor).await?;
                Ready::Runs(Prepared::Builtin(executor, Request::Bash { command }), environment)
            }
            Prepared::Builtin(_, Request::CreateFile { path, .. } | Request::StrReplace { path, .. })
                if ArtifactUri::is_reference(&path) =>
            {
                return Err(ToolOutcome::error(format!(
                    "the input `path` cannot be the reference `{}`, since artifacts are read-only\nhint: give a path in the \
                     workspace, and copy there first what is to be changed",
                    quote(&path)
                )));
            }
            Prepared::Skill(_, SkillRequest::Read { path, .. }) if ArtifactUri::is_reference(&path) => {
                let most = (self.limits.view as u64).max(self.limits.raw_image());
                let bytes = gathering.content("path", &path, most).await?;
                Ready::Done(shown(&path, &bytes, None, &self.limits, &self.redactor))
            }
            Prepared::Skill(tools, SkillRequest::RunScript(mut script)) => {
                let Some(sandbox) = &self.sandbox else {
                    return Ok(Ready::Runs(
                        Prepared::Skill(tools, SkillRequest::RunScript(script)),
                        environment,
                    ));
                };
                let executor = &*sandbox.executor;
                for (at, argument) in script.args.iter_mut().enumerate() {
                    if ArtifactUri::is_reference(argument) {
                        let input = format!("args[{at}]");
                        *argument = gathering.for_sandbox(&input, argument, executor).await?;
                    }
                }
                let environment = gathering.lay_out(executor).await?;
                Ready::Runs(Prepared::Skill(tools, SkillRequest::RunScript(script)), environment)
            }
            Prepared::Host(tool, mut input) => {
                for field in tool.path_inputs() {
                    if let Some(value) = input.get_mut(*field) {
                        gathering.in_value(field, value).await?;
                    }
                }
                Ready::Runs(Prepared::Host(tool, input), environment)
            }
            other => Ready::Runs(other, environment),
        })
    }

    /// What gathers for a call, where references are resolved.
    pub(super) fn gathering<'c>(
        &'c self,
        tools: &'c ArtifactTools,
        artifacts: &'c [Arc<Artifact>],
        options: &CallOptions,
    ) -> Gathering<'c> {
        tools.gathering(artifacts, &*self.clock, options.clone())
    }
}

//! Finding what the references of one call stand for, and putting it where the call finds it.

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_artifact::{ArtifactError, ArtifactUri, Resolved, ResolvedPlace};
use conjure_base::Clock;
use conjure_conversation::{Artifact, FetchedArtifact};
use conjure_sandbox::{ArtifactFolder, CallOptions, Executor};
use futures_util::StreamExt as _;
use serde_json::Value;

use super::failure::{not_given, status_of, unresolved};
use super::shelf::{Wanted, Why};
use super::{ArtifactTools, text_of};
use crate::text::quote;
use crate::tool::{ToolOutcome, ToolStatus};

/// Why a call does not run.
pub(crate) type Refused = ToolOutcome;

/// What is found for one call.
pub(crate) struct Gathering<'c> {
    tools: &'c ArtifactTools,
    /// The session's artifacts when the call began.
    artifacts: &'c [Arc<Artifact>],
    clock: &'c dyn Clock,
    options: CallOptions,
    /// The artifacts whose URLs were fetched.
    pub(crate) fetched: Vec<FetchedArtifact>,
    /// What the model is to be told before the result.
    pub(crate) notices: Vec<String>,
}

impl ArtifactTools {
    /// Begins a call of a session that has these artifacts.
    pub(crate) fn gathering<'c>(
        &'c self,
        artifacts: &'c [Arc<Artifact>],
        clock: &'c dyn Clock,
        options: CallOptions,
    ) -> Gathering<'c> {
        Gathering { tools: self, artifacts, clock, options, fetched: Vec::new(), notices: Vec::new() }
    }
}

impl Gathering<'_> {
    /// The path in the sandbox of what an input stands for, which is there then.
    pub(crate) async fn for_sandbox(
        &mut self,
        input: &str,
        reference: &str,
        executor: &dyn Executor,
    ) -> Result<String, Refused> {
        let resolved = self.resolve(input, reference).await?;
        match &resolved.place {
            ResolvedPlace::SkillFile { skill, path } => {
                let root = executor.layout().sandbox_path(skill.root_dir());
                let place = root.map(|root| text_of(root.join(path)));
                place.ok_or_else(|| {
                    let reason =
                        format!("the sandbox does not have the folder of the skill `{}`", skill.name());
                    self.refused(input, ArtifactError::Unsupported(reason))
                })
            }
            ResolvedPlace::Stored { name, content } => {
                if executor.layout().artifacts == ArtifactFolder::Nowhere {
                    let reason =
                        "this sandbox takes no artifacts; do without it, or tell the user".to_owned();
                    return Err(self.refused(input, ArtifactError::Unsupported(reason)));
                }
                let is_bare = matches!(resolved.uri, ArtifactUri::Url(_));
                let why = match self.artifact(name.as_str()) {
                    Some(artifact) if !is_bare && artifact.content.as_ref() != Some(content) => {
                        Why::Fetched { over: artifact.content.as_ref().map(|content| content.digest) }
                    }
                    _ if is_bare => Why::OfUrl,
                    _ => Why::Registered,
                };
                let turn = self.tools.shelf.turn(executor, &self.tools.resolver, &self.options).await;
                let mut turn = turn.map_err(|error| not_given(input, &error))?;
                let wanted = self.wanted();
                let name = match why {
                    Why::OfUrl => turn.free_name(name.as_str(), content.digest, &wanted),
                    _ => name.to_string(),
                };
                let put = turn.put(&name, content.digest, why).await;
                let path = text_of(put.map_err(|error| not_given(input, &error))?);
                drop(turn);
                if is_bare {
                    self.notices.push(format!("[`{}` was fetched, and is at `{path}`]", quote(reference)));
                }
                Ok(path)
            }
        }
    }

    /// The path on the host of what an input stands for, for a tool that runs there.
    async fn for_host(&mut self, input: &str, reference: &str) -> Result<String, Refused> {
        let resolved = self.resolve(input, reference).await?;
        let content = match resolved.place {
            ResolvedPlace::SkillFile { skill, path } => return Ok(text_of(skill.root_dir().join(path))),
            ResolvedPlace::Stored { content, .. } => content,
        };
        let path = self.tools.resolver.path_of(&content).await;
        path.map(text_of).map_err(|error| self.refused(input, error))
    }

    /// Puts paths on the host in the place of the references in a host tool's input.
    pub(crate) async fn in_value(&mut self, input: &str, value: &mut Value) -> Result<(), Refused> {
        match value {
            Value::String(text) if ArtifactUri::is_reference(text) => {
                *text = self.for_host(input, text).await?;
            }
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    if let Value::String(text) = item
                        && ArtifactUri::is_reference(text)
                    {
                        *text = self.for_host(&format!("{input}[{at}]"), text).await?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The bytes of what an input stands for, where these are not more than `most`.
    pub(crate) async fn content(
        &mut self,
        input: &str,
        reference: &str,
        most: u64,
    ) -> Result<Vec<u8>, Refused> {
        let resolved = self.resolve(input, reference).await?;
        if resolved.size > most {
            return Err(ToolOutcome::error(format!(
                "`{}` has {} bytes, and the most is {most}\nhint: work on a part of it with `bash_tool`",
                quote(reference),
                resolved.size
            )));
        }
        let opened = self.tools.resolver.open(&resolved).await;
        let mut stream = opened.map_err(|error| self.refused(input, error))?.stream;
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(|error| {
                ToolOutcome::error(format!("the input `{input}` could not be resolved: {error}"))
            })?;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// Puts all artifacts of the session where the sandbox has them. What commands have of that: the paths, by variables.
    pub(crate) async fn lay_out(
        &mut self,
        executor: &dyn Executor,
    ) -> Result<BTreeMap<String, String>, Refused> {
        if executor.layout().artifacts == ArtifactFolder::Nowhere {
            return Ok(BTreeMap::new());
        }
        let wanted = self.wanted();
        let laid = async {
            self.tools.shelf.turn(executor, &self.tools.resolver, &self.options).await?.lay(&wanted).await
        };
        let laid = laid.await.map_err(|error| {
            let text = format!("the session's artifacts could not be given to the sandbox: {error}");
            // Nothing was begun, so that it may be tried again.
            let status = match status_of(&error) {
                ToolStatus::Lost => ToolStatus::Failed,
                other => other,
            };
            ToolOutcome::with_status(status, text)
        })?;
        self.notices.extend(laid.notices);
        Ok(laid.environment)
    }

    async fn resolve(&mut self, input: &str, reference: &str) -> Result<Resolved, Refused> {
        let uri = ArtifactUri::parse(reference).map_err(|error| self.refused(input, error))?;
        let CallOptions { deadline, cancel } = &self.options;
        let resolved = self.tools.resolver.resolve(&uri, self.artifacts, *deadline, cancel).await;
        let resolved = resolved.map_err(|error| self.refused(input, error))?;
        if let Some(fetched) = &resolved.fetched {
            self.fetched.retain(|other| other.name != fetched.name);
            self.fetched.push(fetched.clone());
        }
        Ok(resolved)
    }

    fn artifact(&self, name: &str) -> Option<&Arc<Artifact>> {
        self.artifacts.iter().find(|artifact| artifact.name.as_str() == name)
    }

    fn wanted(&self) -> Vec<Wanted<'_>> {
        let wanted = |artifact: &'_ Artifact| artifact.content.as_ref().map(|content| content.digest);
        let artifacts = self.artifacts.iter();
        artifacts
            .map(|artifact| Wanted {
                name: artifact.name.as_str(),
                variable: &artifact.variable,
                digest: wanted(artifact),
            })
            .collect()
    }

    fn refused(&self, input: &str, error: ArtifactError) -> Refused {
        unresolved(input, error, self.clock, self.options.deadline)
    }
}

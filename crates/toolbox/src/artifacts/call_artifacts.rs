//! Resolves the references of one call and installs their content.

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_artifact::{ArtifactError, ArtifactUri, ResolvedLocation, ResolvedReference};
use conjure_base::Clock;
use conjure_conversation::{Artifact, FetchedArtifact};
use conjure_sandbox::{ArtifactDir, CallOptions, Executor};
use futures_util::StreamExt as _;
use serde_json::Value;

use super::artifact_tools::ArtifactTools;
use super::errors::{status_of, unavailable_result, unresolved_result};
use super::installed_artifacts::{InstallReason, RequiredArtifact, path_text};
use crate::text::quote;
use crate::tool::{ToolOutput, ToolStatus};

/// The result of a call that does not run.
pub(crate) type EarlyResult = ToolOutput;

/// The artifacts of one call.
pub(crate) struct CallArtifacts<'c> {
    tools: &'c ArtifactTools,
    /// The session's artifacts when the call began.
    artifacts: &'c [Arc<Artifact>],
    clock: &'c dyn Clock,
    options: CallOptions,
    /// The artifacts whose URLs were fetched.
    pub(crate) fetched: Vec<FetchedArtifact>,
    /// Notices for the model, shown before the result.
    pub(crate) notices: Vec<String>,
}

impl ArtifactTools {
    /// Starts a call of a session with these artifacts.
    pub(crate) fn start_call<'c>(
        &'c self,
        artifacts: &'c [Arc<Artifact>],
        clock: &'c dyn Clock,
        options: CallOptions,
    ) -> CallArtifacts<'c> {
        CallArtifacts { tools: self, artifacts, clock, options, fetched: Vec::new(), notices: Vec::new() }
    }
}

impl CallArtifacts<'_> {
    /// Installs the content of a reference and returns its path in the sandbox.
    pub(crate) async fn for_sandbox(
        &mut self,
        input: &str,
        reference: &str,
        executor: &dyn Executor,
    ) -> Result<String, EarlyResult> {
        let resolved = self.resolve(input, reference).await?;
        match &resolved.location {
            ResolvedLocation::SkillFile { skill, path } => {
                let root = executor.layout().sandbox_path(skill.root_dir());
                let place = root.map(|root| path_text(root.join(path)));
                place.ok_or_else(|| {
                    let reason =
                        format!("the sandbox does not have the directory of the skill `{}`", skill.name());
                    self.early_result(input, ArtifactError::Unsupported(reason))
                })
            }
            ResolvedLocation::Stored { name, content } => {
                if executor.layout().artifacts == ArtifactDir::None {
                    let reason =
                        "this sandbox takes no artifacts; do without it, or tell the user".to_owned();
                    return Err(self.early_result(input, ArtifactError::Unsupported(reason)));
                }
                let is_bare = matches!(resolved.uri, ArtifactUri::Url(_));
                let reason = match self.artifact(name.as_str()) {
                    Some(artifact) if !is_bare && artifact.content.as_ref() != Some(content) => {
                        InstallReason::Fetched {
                            over: artifact.content.as_ref().map(|content| content.digest),
                        }
                    }
                    _ if is_bare => InstallReason::BareUrl,
                    _ => InstallReason::Registered,
                };
                let session = self.tools.installed.lock(executor, &self.tools.resolver, &self.options).await;
                let mut session = session.map_err(|error| unavailable_result(input, &error))?;
                let required = self.required();
                let name = match reason {
                    InstallReason::BareUrl => session.free_name(name.as_str(), content.digest, &required),
                    _ => name.to_string(),
                };
                let installed = session.install(&name, content.digest, reason).await;
                let path = path_text(installed.map_err(|error| unavailable_result(input, &error))?);
                drop(session);
                if is_bare {
                    self.notices.push(format!("[`{}` was fetched, and is at `{path}`]", quote(reference)));
                }
                Ok(path)
            }
        }
    }

    /// Resolves a reference to a path on this machine, for an embedder's tool.
    async fn for_host(&mut self, input: &str, reference: &str) -> Result<String, EarlyResult> {
        let resolved = self.resolve(input, reference).await?;
        let content = match resolved.location {
            ResolvedLocation::SkillFile { skill, path } => return Ok(path_text(skill.root_dir().join(path))),
            ResolvedLocation::Stored { content, .. } => content,
        };
        let path = self.tools.resolver.content_path(&content).await;
        path.map(path_text).map_err(|error| self.early_result(input, error))
    }

    /// Replaces the references in an embedder's tool input by paths on this machine.
    pub(crate) async fn resolve_in_value(
        &mut self,
        input: &str,
        value: &mut Value,
    ) -> Result<(), EarlyResult> {
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

    /// Reads the content of a reference, of at most `max_bytes`.
    pub(crate) async fn content(
        &mut self,
        input: &str,
        reference: &str,
        max_bytes: u64,
    ) -> Result<Vec<u8>, EarlyResult> {
        let resolved = self.resolve(input, reference).await?;
        if resolved.size > max_bytes {
            return Err(ToolOutput::error(format!(
                "`{}` has {} bytes, and the maximum is {max_bytes}\nhint: work on a part of it with `bash_tool`",
                quote(reference),
                resolved.size
            )));
        }
        let opened = self.tools.resolver.open(&resolved).await;
        let mut stream = opened.map_err(|error| self.early_result(input, error))?.stream;
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(|error| {
                ToolOutput::error(format!("the input `{input}` could not be resolved: {error}"))
            })?;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// Installs all artifacts of the session in the sandbox. Returns their paths by environment variable.
    pub(crate) async fn install_all(
        &mut self,
        executor: &dyn Executor,
    ) -> Result<BTreeMap<String, String>, EarlyResult> {
        if executor.layout().artifacts == ArtifactDir::None {
            return Ok(BTreeMap::new());
        }
        let required = self.required();
        let report = async {
            self.tools
                .installed
                .lock(executor, &self.tools.resolver, &self.options)
                .await?
                .install_required(&required)
                .await
        };
        let report = report.await.map_err(|error| {
            let text = format!("the session's artifacts could not be given to the sandbox: {error}");
            // Nothing has started, so a retry is safe.
            let status = match status_of(&error) {
                ToolStatus::Lost => ToolStatus::Failed,
                other => other,
            };
            ToolOutput::with_status(status, text)
        })?;
        self.notices.extend(report.notices);
        Ok(report.environment)
    }

    async fn resolve(&mut self, input: &str, reference: &str) -> Result<ResolvedReference, EarlyResult> {
        let uri = ArtifactUri::parse(reference).map_err(|error| self.early_result(input, error))?;
        let CallOptions { deadline, cancel } = &self.options;
        let resolved = self.tools.resolver.resolve(&uri, self.artifacts, *deadline, cancel).await;
        let resolved = resolved.map_err(|error| self.early_result(input, error))?;
        if let Some(fetched) = &resolved.newly_fetched {
            self.fetched.retain(|other| other.name != fetched.name);
            self.fetched.push(fetched.clone());
        }
        Ok(resolved)
    }

    fn artifact(&self, name: &str) -> Option<&Arc<Artifact>> {
        self.artifacts.iter().find(|artifact| artifact.name.as_str() == name)
    }

    fn required(&self) -> Vec<RequiredArtifact<'_>> {
        let digest_of = |artifact: &'_ Artifact| artifact.content.as_ref().map(|content| content.digest);
        let artifacts = self.artifacts.iter();
        artifacts
            .map(|artifact| RequiredArtifact {
                name: artifact.name.as_str(),
                variable: &artifact.variable,
                digest: digest_of(artifact),
            })
            .collect()
    }

    fn early_result(&self, input: &str, error: ArtifactError) -> EarlyResult {
        unresolved_result(input, error, self.clock, self.options.deadline)
    }
}

//! [`LoadSkillTool`]: loads a skill of a server for the model, after the user has approved it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::text::strip_deceptive;
use conjure_conversation::{CallConcurrency, CallTraits, PermissionPolicy, ToolDefinition};
use conjure_sandbox::{CallOptions, Executor};
use conjure_toolbox::{Tool, ToolContext, ToolOutput};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::listed_skill::ListedSkill;
use super::skill_files::{SkillFile, VerifiedSkill};
use crate::client::shared_server::SharedServer;

/// The name of the tool. The configured lists of enabled and disabled tools may contain it.
pub(in crate::client) const LOAD_SKILL_TOOL: &str = "mcp_load_skill";

/// The workspace directory for the files of skills.
const DIR: &str = "mcp-skills";

/// The maximum size of the list of skills in the definition: about 2,000 tokens.
const MAX_LIST_BYTES: usize = 8_000;

/// The maximum length of a description in that list, in characters, and the maximum number of paths in the result.
const MAX_DESCRIPTION_CHARS: usize = 400;
const MAX_SHOWN_FILES: usize = 60;

/// How many digits of the version are part of a skill's directory name.
const DIR_DIGITS: usize = 16;

/// The timeout of a load, including the start of the server.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A skill and its server.
pub(in crate::client) struct OfferedSkill {
    pub(in crate::client) server: Arc<SharedServer>,
    pub(in crate::client) skill: ListedSkill,
}

/// Loads a skill: writes its files to the sandbox, and returns its instructions to the model.
///
/// Each call needs the user's approval. The input names the version, so the approval is for that version only.
pub(in crate::client) struct LoadSkillTool {
    pub(in crate::client) skills: Vec<OfferedSkill>,
    /// The sandbox of the session's tools.
    pub(in crate::client) files: Option<Arc<dyn Executor>>,
}

#[derive(Deserialize)]
struct Input {
    server: String,
    skill: String,
    version: String,
}

impl OfferedSkill {
    fn server_name(&self) -> &str {
        self.server.spec.name.as_str()
    }

    /// The line about the skill in the tool's definition.
    fn line(&self) -> String {
        let (server, skill, version) = (self.server_name(), self.skill.name(), &self.skill.version);
        let words = self.skill.description();
        let words = conjure_base::text::truncate(&words, MAX_DESCRIPTION_CHARS);
        format!("\n- server `{server}`, skill `{skill}`, version `{version}`: {words}")
    }
}

impl Tool for LoadSkillTool {
    fn definition(&self) -> ToolDefinition {
        let mut description = format!(
            "Loads a skill of an MCP server: instructions for a job. Its files are written to the directory `{DIR}` of the sandbox. Load a \
             skill before you do a job that it is for. A person decides on each. The descriptions are the servers' words:"
        );
        let mut skipped = 0;
        for skill in &self.skills {
            let line = skill.line();
            if description.len() + line.len() <= MAX_LIST_BYTES {
                description.push_str(&line);
            } else {
                skipped += 1;
            }
        }
        if skipped > 0 {
            let _ = write!(
                description,
                "\n{skipped} more are not shown. A call with a skill that does not exist returns all of that server."
            );
        }
        let text = |description: &str| json!({"type": "string", "description": description});
        ToolDefinition {
            name: LOAD_SKILL_TOOL.to_owned(),
            description: strip_deceptive(&description).into_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "server": text("The name of the server."),
                    "skill": text("The name of the skill."),
                    "version": text("Its version as listed. The person agrees to this version."),
                },
                "required": ["server", "skill", "version"]
            }),
        }
    }

    fn traits(&self) -> CallTraits {
        CallTraits { concurrency: CallConcurrency::Exclusive, idempotent: true }
    }

    fn permission(&self) -> PermissionPolicy {
        PermissionPolicy::AlwaysAsk
    }

    fn approval_reason(&self, input: &Value) -> Option<String> {
        let input = serde_json::from_value::<Input>(input.clone());
        let found = input.map_err(|error| error.to_string()).and_then(|input| self.find(&input));
        Some(match found {
            Err(_) => "the model wants a skill that no MCP server lists".to_owned(),
            Ok(offered) => format!(
                "the model wants the skill `{}` of the MCP server `{}`: its instructions, and {} files with {} bytes, which commands of the \
                 session may run then: {}",
                offered.skill.name(),
                offered.server_name(),
                offered.skill.files.len(),
                offered.skill.bytes(),
                shown_paths(offered.skill.files.iter().map(|file| file.path.as_str()))
            ),
        })
    }

    fn timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    fn call(&self, input: Value, context: ToolContext) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            let input: Input = match serde_json::from_value(input) {
                Ok(input) => input,
                Err(error) => return ToolOutput::error(format!("bad input: {error}")),
            };
            let options = CallOptions { deadline: context.deadline, cancel: context.cancel.clone() };
            tokio::select! {
                biased;
                loaded = self.load(&input, options) => loaded.into(),
                () = context.cancel.cancelled() => ToolOutput::error("cancelled: the skill was not loaded"),
            }
        })
    }
}

impl LoadSkillTool {
    async fn load(&self, input: &Input, options: CallOptions) -> Result<String, String> {
        let offered = self.find(input)?;
        let skill = offered.server.read_skill(&offered.skill, options.clone()).await;
        let VerifiedSkill { instructions, files } = skill.map_err(|error| error.to_string())?;
        let (server, name) = (offered.server_name(), offered.skill.name());
        let mut told =
            format!("[The skill `{name}` of the MCP server `{server}`. Its words are the server's.");
        match &self.files {
            Some(executor) => {
                let digits = input.version.get(..DIR_DIGITS).unwrap_or_default();
                let dir = format!("{DIR}/{server}/{name}-{digits}");
                write_files(&**executor, &dir, &files, &options).await?;
                let paths = shown_paths(files.iter().map(|file| file.path.as_str()));
                let _ = write!(told, " Its files are in the directory `{dir}`: {paths}");
            }
            None => told.push_str(" The session has no sandbox for its files."),
        }
        let _ = write!(told, "]\n\n{instructions}");
        // Who reviews the skill does not see hidden text, so the model does not get it either.
        Ok(strip_deceptive(&told).into_owned())
    }

    /// Finds the skill in exactly the version that the input names.
    fn find(&self, input: &Input) -> Result<&OfferedSkill, String> {
        let of_server = || self.skills.iter().filter(|offered| offered.server_name() == input.server);
        let named = || of_server().filter(|offered| offered.skill.name() == input.skill);
        if let Some(found) = named().find(|offered| offered.skill.version == input.version) {
            return Ok(found);
        }
        let lines =
            |skills: Vec<&OfferedSkill>| skills.iter().map(|offered| offered.line()).collect::<String>();
        let others: Vec<&OfferedSkill> = named().collect();
        if !others.is_empty() {
            return Err(format!(
                "this skill has another version now, which a person has to agree to:{}",
                lines(others)
            ));
        }
        let others: Vec<&OfferedSkill> = of_server().collect();
        if others.is_empty() {
            let mut servers: Vec<&str> = self.skills.iter().map(OfferedSkill::server_name).collect();
            servers.dedup();
            return Err(format!(
                "no server of this name has skills; those that have are: {}",
                servers.join(", ")
            ));
        }
        Err(format!("the server has no skill of this name; its skills are:{}", lines(others)))
    }
}

/// The paths of files, as part of a sentence.
fn shown_paths<'p>(paths: impl ExactSizeIterator<Item = &'p str>) -> String {
    let more = paths.len().saturating_sub(MAX_SHOWN_FILES);
    let shown: Vec<String> = paths.take(MAX_SHOWN_FILES).map(|path| format!("`{path}`")).collect();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", shown.join(", "))
}

async fn write_files(
    executor: &dyn Executor,
    dir: &str,
    files: &[SkillFile],
    options: &CallOptions,
) -> Result<(), String> {
    for file in files {
        let path = format!("{dir}/{}", file.path);
        let written = executor.create_file(&path, &file.bytes, options.clone()).await;
        written.map_err(|error| format!("`{path}` cannot be written: {error}"))?;
    }
    Ok(())
}

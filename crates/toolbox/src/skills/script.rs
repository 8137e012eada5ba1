//! `skills.run_script`: runs a file of an active skill in the sandbox, by its interpreter and without a shell.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use conjure_prompt::SessionSkill;
use conjure_sandbox::{Command, CommandEnd, CommandOutcome, SandboxError, SandboxErrorKind};
use serde::Serialize;

use super::error::SkillCallError;
use super::interpreters::parse_shebang;
use super::read::file_error;
use super::request::Script;
use super::skill_tools::{SkillCallContext, SkillTools, join_in_skill, run_blocking};
use crate::builtin::bash::{NOTICE_BYTES, capture_limit, notices, push_output};
use crate::builtin::error_text::sandbox_error_result;
use crate::text::quote;
use crate::tool::{ToolOutput, ToolStatus};

/// How many bytes of a script are read for its `#!` line.
const FIRST_LINE_BYTES: usize = 256;

/// The directory for temporary files. It is writable in every kind of sandbox.
const SCRATCH_DIR: &str = "/tmp";

/// The result of a script (runtime specification, "Skill Script Execution Tool").
#[derive(Serialize)]
struct ScriptReport<'r> {
    path: &'r str,
    /// Null if it did not exit by itself.
    exit_code: Option<i32>,
    stdout: String,
    stderr: String,
    /// Notices about how it ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notices: Vec<String>,
}

impl SkillTools {
    pub(super) async fn run_script(
        &self,
        script: Script,
        call: &SkillCallContext<'_>,
    ) -> Result<ToolOutput, SkillCallError> {
        let skill = self.find_active(script.skill.as_deref(), &call.session_view)?;
        // The approval was for the skill that was the most recent one at that time.
        if script.skill.is_none()
            && call.session_view.skills_at_response().last() != call.session_view.active_skills().last()
        {
            return Err(SkillCallError::AmbiguousSkill);
        }
        let root = self.skills.root_dir(skill).zip(call.executor);
        let (root, executor) =
            root.ok_or_else(|| SkillCallError::NotInSandbox { name: skill.name().to_owned() })?;
        let relative = self.relative_path(skill, &script.path)?;
        let program = self.program(skill, &script.path, &relative, &join_in_skill(&root, &relative)).await?;
        let workspace = executor.layout().workspace.to_string_lossy().into_owned();
        let dir = match script.workdir.as_deref() {
            None => root.clone(),
            Some(dir) if Path::new(dir).is_absolute() => dir.into(),
            Some(dir) => join_in_skill(&root, &self.relative_path(skill, dir)?),
        };
        let root = root.to_string_lossy().into_owned();
        let kept = capture_limit(call.limits.shell) / 2;
        let command = Command {
            env: variables(
                &program,
                &root,
                &workspace,
                call.environment.clone(),
                self.default_inputs(skill),
                script.env,
            ),
            cwd: Some(dir.to_string_lossy().into_owned()),
            merge_stderr: false,
            keep_head: kept,
            keep_tail: kept,
            spill: call.limits.spill,
            ..Command::new(program.iter().cloned().chain(script.args))
        };
        let interpreter = program[0].clone();
        match executor.run(command, call.options.clone()).await {
            Ok(outcome) => Ok(report(&quote(&script.path), &root, &outcome, call)),
            Err(error) => match missing_interpreter(&script.path, &interpreter, &error) {
                Some(missing) => Err(missing),
                None => Ok(sandbox_error_result("run", &quote(&script.path), &error)),
            },
        }
    }

    /// The program that runs a script, with the arguments before the script's own.
    async fn program(
        &self,
        skill: &Arc<SessionSkill>,
        path: &str,
        relative: &Path,
        command_path: &Path,
    ) -> Result<Vec<String>, SkillCallError> {
        let (reader, file) = (Arc::clone(skill), relative.to_owned());
        let read = run_blocking(move || {
            reader.files();
            reader.skill().resource_start(&file, FIRST_LINE_BYTES)
        });
        let start = read
            .await
            .ok_or_else(|| SkillCallError::NoInterpreter { path: quote(path) })?
            .map_err(|error| file_error(skill, path, relative, &error))?;
        let command_path = command_path.to_string_lossy().into_owned();
        let before = match self.interpreters.for_script(relative) {
            Some(argv) => argv.to_vec(),
            None if start.is_executable => Vec::new(),
            None => parse_shebang(&start.bytes)
                .ok_or_else(|| SkillCallError::NoInterpreter { path: quote(path) })?,
        };
        Ok(before.into_iter().chain([command_path]).collect())
    }
}

/// The environment variables of a script, in addition to the sandbox's own. The model's variables come last, and cannot use the
/// reserved prefix.
fn variables(
    program: &[String],
    root: &str,
    workspace: &str,
    artifacts: BTreeMap<String, String>,
    inputs: BTreeMap<String, String>,
    model_variables: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::from(
        [
            ("CONJURE_SKILL_DIR", root),
            ("CONJURE_WORKSPACE", workspace),
            ("CONJURE_SCRATCH", SCRATCH_DIR),
            ("TMPDIR", SCRATCH_DIR),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    if program[0].starts_with("python") {
        // Import the skill's packages from its directory, as by `python -m`. The directory is read-only, so write no bytecode.
        variables.insert("PYTHONPATH".to_owned(), root.to_owned());
        variables.insert("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
    }
    variables.extend(artifacts);
    variables.extend(inputs);
    variables.extend(model_variables);
    variables
}

/// The error if the interpreter is missing. `None` for any other error, such as a missing working directory.
fn missing_interpreter(path: &str, interpreter: &str, error: &SandboxError) -> Option<SkillCallError> {
    let names_it = error.to_string().contains(&format!("`{interpreter}`"));
    (error.kind() == SandboxErrorKind::NotFound && names_it).then(|| SkillCallError::InterpreterMissing {
        path: quote(path),
        interpreter: interpreter.to_owned(),
        reason: error.to_string(),
    })
}

fn report(path: &str, root: &str, outcome: &CommandOutcome, call: &SkillCallContext<'_>) -> ToolOutput {
    let exit_code = match outcome.end {
        CommandEnd::Exited(code) => Some(code),
        _ => None,
    };
    if let Some(code) = exit_code {
        // The span of the call, if there is one.
        tracing::Span::current().record("process.exit.code", code);
    }
    let budget = call.limits.shell.saturating_sub(NOTICE_BYTES);
    // Budget that one stream does not need goes to the other.
    let stream_budget = |total: u64| usize::try_from(total).unwrap_or(usize::MAX).min(budget / 2);
    let shares = [
        (&outcome.stdout, budget - stream_budget(outcome.stderr.total)),
        (&outcome.stderr, budget - stream_budget(outcome.stdout.total)),
    ];
    let [stdout, stderr] = shares.map(|(output, share)| {
        let mut text = String::new();
        push_output(&mut text, output, share, call.redactor);
        // Redact before the JSON encoding, which changes quotes, backslashes and line ends, so that a secret would no longer match.
        call.redactor.redact(&text).into_owned()
    });
    let (status, mut notices) = notices(outcome, stdout.is_empty() && stderr.is_empty());
    if exit_code.is_some() {
        // The field `exit_code` says it already.
        notices.retain(|notice| !notice.starts_with("exit code"));
    }
    if status != ToolStatus::Succeeded && mentions_read_only(&stdout, &stderr) {
        notices.push(format!(
            "the skill's directory `{root}` cannot be written: let the script write to the workspace ($CONJURE_WORKSPACE), or to \
             $CONJURE_SCRATCH what nobody needs later, by its arguments or from there as `workdir`"
        ));
    }
    for notice in &mut notices {
        *notice = call.redactor.redact(notice).into_owned();
    }
    let path = &*call.redactor.redact(path);
    let report = ScriptReport { path, exit_code, stdout, stderr, notices };
    ToolOutput::with_status(status, serde_json::to_string(&report).unwrap_or_default())
}

/// Whether the output says that the script was not allowed to write.
fn mentions_read_only(stdout: &str, stderr: &str) -> bool {
    ["Read-only file system", "EROFS", "Permission denied", "EACCES"]
        .iter()
        .any(|sign| stderr.contains(sign) || stdout.contains(sign))
}

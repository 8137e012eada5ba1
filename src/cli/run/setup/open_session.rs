//! Opens a new session for a command. Most errors are reported before the session is opened; after that, an error deletes the session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::artifact::RegistrationSource;
use conjure::config::ExecutorKind;
use conjure::model::Recorder;
use conjure::session::{SessionWorkspace, WorkspaceSnapshot, redactor_of_inputs};
use conjure::skill::Inputs as SkillInputs;
use conjure::{Config, Model, ProcessEnv, RuntimeError, RuntimeOptions, SessionSpec, Settings, Skill};

use crate::cli::approvals::Rules;
use crate::cli::args::{Attachment, NewSessionArgs};
use crate::cli::cli_error::CliError;
use crate::cli::command_runtime::{self, CommandRuntime, Persistence};
use crate::cli::destination::{self, DestinationError, ToolDirs};
use crate::cli::doctor;
use crate::cli::run::command_session::{CommandSession, HostedState, ModelRecording, WorkspaceOwner};
use crate::cli::run::outputs::output_copy::{self, OutputTarget};
use crate::cli::run::setup::mcp_servers;
use crate::cli::run::setup::model_source::{ModelArgs, SelectedModel, select_model};
use crate::cli::run::setup::sandbox_flags::sandbox_notes;
use crate::cli::run::setup::session_setup::{
    add_files, no_workspace_error, redactor, run_blocking, tool_dirs, variables, with_recorder,
};
use crate::cli::skills::{inputs, load_configured};
use crate::cli::terminal::{Style, Terminal, printable};

/// The catalog for the directories that the configuration or `--skills` names.
const CATALOG: &str = "default";

/// The base instructions of the system prompt.
const BASE_PROMPT: &str = "You are a helpful assistant with tools. Use them to find out instead of guessing, and \
                           answer briefly.";

/// The files of a new session, in addition to the shared options.
#[derive(Debug, Default)]
pub(crate) struct SessionFiles {
    /// Files to copy to the workspace.
    pub(crate) copied: Vec<PathBuf>,
    /// The directory for copies of outputs, and the limit of their total size.
    pub(crate) out: Option<(PathBuf, u64)>,
}

/// A session that was opened, before its sandbox is created.
pub(crate) struct NewSession {
    pub(crate) recording: ModelRecording,
    /// The name of the model in the session.
    pub(crate) model_name: String,
    /// A description of the model in one line.
    pub(crate) model_label: String,
    pub(crate) skills: Vec<Arc<Skill>>,
    /// The files in the workspace.
    files: Vec<PathBuf>,
    site: ExecutionSite,
    executor: ExecutorKind,
}

/// A value of `--sandbox` for a first try on any machine: a jail if one can be created, and otherwise `local`.
const JAIL_OR_LOCAL: &str = "jail-or-local";

/// Returns the jail. If this machine permits no jail, prints a warning and returns `local`.
async fn jail_or_local(environment: &ProcessEnv, terminal: &Terminal) -> ExecutorKind {
    match doctor::start(environment, ExecutorKind::Jail).await {
        Ok(workbench) => {
            workbench.close().await;
            ExecutorKind::Jail
        }
        Err(reason) => {
            terminal.warning(&format!(
                "{reason}; tools run in the sandbox `local`, as `--sandbox {JAIL_OR_LOCAL}` allows"
            ));
            ExecutorKind::Local
        }
    }
}

/// The kind of sandbox that `--sandbox` names, if it is given.
pub(crate) async fn executor_of(
    option: Option<&String>,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<Option<ExecutorKind>, CliError> {
    let Some(kind) = option else { return Ok(None) };
    if kind == JAIL_OR_LOCAL {
        return Ok(Some(jail_or_local(environment, terminal).await));
    }
    kind.parse().map(Some).map_err(|reason| {
        CliError::usage(format!("`--sandbox`: {reason}")).with_hint("`local` isolates nothing")
    })
}

/// Merges the options of the command line over the configuration.
pub(crate) async fn merge_args(
    args: &NewSessionArgs,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<Config, CliError> {
    let executor = executor_of(args.sandbox.as_ref(), environment, terminal).await?;
    let config = command_runtime::with_data_dir(&args.data_args, config)?.with(Settings {
        executor,
        image: args.image.clone(),
        skill_paths: (!args.skills.is_empty()).then(|| args.skills.clone()),
        tool_timeout: args.tool_timeout,
        max_iterations: args.max_turns,
        network: args.network.clone(),
        memory: args.memory,
        cpus: args.cpus,
        mcp: mcp_servers::servers(&args.mcp, config, terminal)?,
        ..Settings::default()
    })?;
    if args.image.is_some() && config.executor() != ExecutorKind::Docker {
        let kind = config.executor().as_str();
        let told = format!("`--image`: the sandbox `{kind}` is made of no image");
        return Err(CliError::usage(told).with_hint("`--sandbox docker` makes a container of one"));
    }
    Ok(config)
}

/// The options and files of the command line, loaded and checked.
struct LoadedArgs {
    model: SelectedModel,
    recorder: Option<Arc<Recorder<Arc<dyn Model>>>>,
    skills: Vec<Arc<Skill>>,
    variables: BTreeMap<String, String>,
    inputs: SkillInputs,
    workspace: Option<PathBuf>,
    out: Option<OutputTarget>,
    attached: Vec<(String, RegistrationSource)>,
    tools: Arc<ToolDirs>,
}

/// Opens a session. It is stored in `slot` as soon as it exists.
pub(crate) async fn open_session(
    args: &NewSessionArgs,
    session_files: SessionFiles,
    config: &Config,
    environment: ProcessEnv,
    terminal: &Arc<Terminal>,
    slot: &mut Option<CommandSession>,
) -> Result<NewSession, CliError> {
    let SessionFiles { copied, out } = session_files;
    let site = ExecutionSite::from_args(args);
    if site == ExecutionSite::Hosted && !copied.is_empty() {
        return Err(no_workspace_error().with_hint(
            "`--attach` gives the file to the model's service; `--sandbox` has tools run here, too",
        ));
    }
    let rules = Rules::from_args(&args.rules)?;
    // Reading and copying large files blocks, and signals must still be handled.
    let (own_args, own_config, own_environment, own_terminal) =
        (args.clone(), config.clone(), environment.clone(), Arc::clone(terminal));
    let loaded =
        run_blocking(move || load_args(&own_args, out, &own_config, &own_environment, &own_terminal)).await?;
    let LoadedArgs {
        model: selected,
        recorder,
        skills,
        variables,
        inputs,
        workspace: dir,
        out,
        attached,
        tools,
    } = loaded;
    let persistence = if args.ephemeral { Persistence::Ephemeral } else { Persistence::Persistent };
    let (name, model) = (selected.name.clone(), Arc::clone(&selected.model));
    let options = |config: Config| {
        let options =
            RuntimeOptions::from(config).model(name.clone(), Arc::clone(&model)).approver(rules.approver());
        let options = match std::env::current_dir() {
            Ok(dir) => options.project(dir),
            Err(_) => options,
        };
        selected.with_key(options, &environment)
    };
    let host = CommandRuntime::for_run(&args.data_args, persistence, options, config, &environment, terminal)
        .await?;
    let mut spec = SessionSpec::new(host.tenant.clone())
        .base_prompt(BASE_PROMPT)
        .model(selected.name.clone())
        .hosted(args.hosted.clone())
        .mcp_servers(config.mcp_servers().keys());
    if site == ExecutionSite::Local {
        spec = spec.sandbox(config.executor().as_str()).inputs(inputs);
        if !args.hosted.is_empty() {
            // Without this the session would only have the hosted skills.
            spec = spec.catalog(CATALOG);
        }
    }
    for (name, value) in variables {
        spec = spec.environment(name, value);
    }
    for (name, value) in sandbox_notes(args).into_iter().chain(selected.script_note()).chain(rules.to_notes())
    {
        spec = spec.metadata(name, value);
    }
    if let Some(activation) = args.activation {
        spec = spec.activation(activation);
    }
    if let Some(dir) = dir {
        spec = spec.workspace(dir);
    }
    for (name, source) in attached {
        spec = spec.artifact(name, source);
    }
    let session = match host.runtime.open(spec).await {
        Ok(session) => session,
        Err(error @ RuntimeError::Artifact { .. }) => {
            return Err(CliError::usage(format!("`--attach`: {error}")));
        }
        Err(error) => return Err(error.into()),
    };
    let id = session.id();
    let dir = host.runtime.workspace(&host.tenant, id).await?;
    let dir = dir.ok_or_else(|| CliError::internal("the session has no directory to work in"))?;
    let owner = if args.workspace.is_some() { WorkspaceOwner::User } else { WorkspaceOwner::Session };
    let workspace = SessionWorkspace::at_real_path(&dir)?;
    let hosted = HostedState { skills: args.hosted.clone(), ..HostedState::default() };
    let opened = slot.insert(CommandSession {
        host,
        session,
        workspace,
        owner,
        before: WorkspaceSnapshot::default(),
        out,
        hosted,
    });
    let (files, before) = add_files(dir, copied, tools).await?;
    opened.before = before;
    Ok(NewSession {
        recording: ModelRecording { recorder, price_check: selected.price_check },
        model_name: name,
        model_label: selected.label,
        skills,
        files,
        site,
        executor: config.executor(),
    })
}

impl NewSession {
    /// Creates the sandbox, and prints the parts of the session. Returns the paths of the copied files in the sandbox.
    pub(crate) async fn create_sandbox(
        &self,
        opened: &CommandSession,
        terminal: &Terminal,
    ) -> Result<Vec<PathBuf>, CliError> {
        terminal.styled(Style::Dim, &self.model_label);
        opened.hosted.print_hosted_skills(terminal);
        match self.site {
            ExecutionSite::Local => {
                opened.create_sandbox(self.executor, terminal).await?;
                opened.print_workspace(self.skills.len(), terminal);
                opened.sandbox_paths(&self.files).await
            }
            ExecutionSite::Hosted => Ok(Vec::new()),
        }
    }
}

/// The source of an attachment's content. Links that tools may have created are not followed. Blocks.
pub(crate) fn registration_source(
    attached: &Attachment,
    tools: &ToolDirs,
) -> Result<RegistrationSource, String> {
    if attached.is_url() {
        return Ok(RegistrationSource::url(&attached.location));
    }
    let path = Path::new(&attached.location);
    match destination::real_path(path, tools) {
        Ok(path) => Ok(RegistrationSource::real_file(path)),
        Err(error @ DestinationError::Link { .. }) => Err(error.to_string()),
        // The registration finds the same error, and names the artifact.
        Err(DestinationError::Failed { .. }) => Ok(RegistrationSource::real_file(path)),
    }
}

/// Where tools run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExecutionSite {
    Local,
    /// Only at the model's service.
    Hosted,
}

impl ExecutionSite {
    fn from_args(args: &NewSessionArgs) -> Self {
        let asks_for_here = args.sandbox.is_some() || !args.skills.is_empty() || args.workspace.is_some();
        if args.hosted.is_empty() || asks_for_here { Self::Local } else { Self::Hosted }
    }
}

/// Loads the model and the skills. Secrets are redacted from here on.
fn load_args(
    args: &NewSessionArgs,
    out: Option<(PathBuf, u64)>,
    config: &Config,
    process: &ProcessEnv,
    terminal: &Terminal,
) -> Result<LoadedArgs, CliError> {
    let variables = variables(&args.env)?;
    let source = ModelArgs { model: args.model.as_deref(), script: args.script.as_deref(), calls_before: 0 };
    let selected = select_model(source, args.record.as_deref(), config, process)?;
    let skills = load_configured(config, terminal)?;
    let workspace = args.workspace.as_deref().map(|dir| real_dir(dir, terminal)).transpose()?;
    let tools = tool_dirs(workspace.as_deref(), config, process);
    let inputs = inputs(&args.input, &skills, &tools)?;
    let redactor = redactor(&variables, &selected, config, process);
    redactor.extend(&redactor_of_inputs(&skills, &inputs, &variables));
    terminal.redact(redactor.clone());
    let (selected, recorder) = with_recorder(selected, args.record.as_deref(), redactor, &tools)?;
    warn_missing_inputs(&skills, &inputs, terminal);
    let out = match out {
        Some((path, limit)) => Some(OutputTarget { dir: output_copy::open_dir(&path, &tools)?, limit }),
        None => None,
    };
    let attached = args.attach.iter().map(|attached| {
        let source = registration_source(attached, &tools);
        let source =
            source.map_err(|reason| CliError::usage(format!("`--attach`: {}", printable(&reason))))?;
        Ok((attached.name.clone(), source))
    });
    let attached = attached.collect::<Result<_, CliError>>()?;
    let tools = Arc::new(tools);
    Ok(LoadedArgs { model: selected, recorder, skills, variables, inputs, workspace, out, attached, tools })
}

/// Warns about skills that cannot be loaded because their inputs are missing.
fn warn_missing_inputs(skills: &[Arc<Skill>], inputs: &SkillInputs, terminal: &Terminal) {
    for skill in skills {
        let missing = skill.manifest().into_iter().flat_map(|manifest| manifest.missing_inputs(inputs));
        let missing: Vec<String> =
            missing.map(|problem| format!("`--input {}=VALUE`", printable(problem.name()))).collect();
        if !missing.is_empty() {
            let (name, missing) = (skill.name(), missing.join(" and "));
            terminal.warning(&format!("the skill `{name}` cannot be loaded in this run: it needs {missing}"));
        }
    }
}

/// The canonical path of the user's directory, so that a later link cannot redirect the session. Reports a link in the path.
fn real_dir(dir: &Path, terminal: &Terminal) -> Result<PathBuf, CliError> {
    let found = SessionWorkspace::existing(dir);
    let found = found.map_err(|error| CliError::from(error).in_option("--workspace"))?;
    if has_symlink(dir) {
        let (named, real) = (dir.to_string_lossy(), found.path().to_string_lossy());
        let (named, real) = (printable(&named), printable(&real));
        terminal.note(&format!("`--workspace {named}` is a link: tools work in {real}"));
    }
    Ok(found.path().to_owned())
}

/// Whether a component of the path is a link.
fn has_symlink(path: &Path) -> bool {
    // Without a current directory there are no relative paths either.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.ancestors().any(Path::is_symlink)
}

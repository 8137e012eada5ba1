//! Prepares a run before the model is called. Errors are reported here before anything has happened, and a session
//! that was opened is deleted then.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::artifact::RegistrationSource;
use conjure::config::ExecutorKind;
use conjure::model::Recorder;
use conjure::session::{ContextOptions, Redactor, SessionWorkspace, WorkspaceSnapshot, redactor_of_inputs};
use conjure::skill::Inputs as SkillInputs;
use conjure::{Config, Model, ProcessEnv, RuntimeError, RuntimeOptions, SessionSpec, Settings, Skill};

use crate::cli::approvals::Rules;
use crate::cli::args::{RunArgs, Variable};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::{self, CommandRuntime, Persistence};
use crate::cli::destination::{self, ToolDirs};
use crate::cli::doctor;
use crate::cli::run::command_session::{CommandSession, HostedState, ModelRecording, WorkspaceOwner};
use crate::cli::run::follow_turn::TurnCommand;
use crate::cli::run::model_source::{ModelArgs, SelectedModel, select_model};
use crate::cli::run::outputs::output_copy::{self, OutputTarget};
use crate::cli::run::prompt_input;
use crate::cli::run::sandbox_flags::sandbox_notes;
use crate::cli::skills::{inputs, load_configured};
use crate::cli::terminal::{Style, Terminal, printable};

/// The catalog of the folders that the configuration or `--skills` names.
const CATALOG: &str = "default";

/// The first instructions.
const BASE_PROMPT: &str = "You are a helpful assistant with tools. Use them to find out instead of guessing, and \
                           answer briefly.";

/// What a run needs beside its session.
pub(super) struct RunPlan {
    pub(super) command: TurnCommand,
    pub(super) recording: ModelRecording,
}

/// The value of `--sandbox` for a first look on any machine: a jail where one can be created.
const JAIL_OR_LOCAL: &str = "jail-or-local";

/// The jail, or `local` with a warning where this machine permits no jail.
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

/// Merges the options of the command line over the configuration.
pub(super) async fn merge_args(
    args: &RunArgs,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<Config, CliError> {
    let executor = match &args.sandbox {
        Some(kind) if kind == JAIL_OR_LOCAL => Some(jail_or_local(environment, terminal).await),
        Some(kind) => Some(kind.parse::<ExecutorKind>().map_err(|reason| {
            CliError::usage(format!("`--sandbox`: {reason}")).with_hint("`local` isolates nothing")
        })?),
        None => None,
    };
    let config = command_runtime::with_data_dir(&args.data_args, config)?.with(Settings {
        executor,
        image: args.image.clone(),
        skill_paths: (!args.skills.is_empty()).then(|| args.skills.clone()),
        tool_timeout: args.tool_timeout,
        max_iterations: args.max_turns,
        network: args.network.clone(),
        memory: args.memory,
        cpus: args.cpus,
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
    skill_count: usize,
    variables: BTreeMap<String, String>,
    inputs: SkillInputs,
    workspace: Option<PathBuf>,
    out: Option<OutputTarget>,
}

/// Prepares everything. The session is put into `slot` as soon as it exists.
pub(super) async fn prepare(
    args: &Arc<RunArgs>,
    config: &Config,
    environment: ProcessEnv,
    terminal: &Arc<Terminal>,
    slot: &mut Option<CommandSession>,
) -> Result<RunPlan, CliError> {
    let prompt = prompt_input::check_prompt(&args.prompt)?;
    if ExecutionSite::from_args(args) == ExecutionSite::Hosted && !args.file.is_empty() {
        return Err(no_workspace_error().with_hint(
            "`--attach` gives the file to the model's service; `--sandbox` has tools run here, too",
        ));
    }
    let rules = Rules::from_args(&args.rules)?;
    // Reading and copying large files blocks: a signal must not wait for it.
    let (own_args, own_config, own_environment, own_terminal) =
        (Arc::clone(args), config.clone(), environment.clone(), Arc::clone(terminal));
    let loaded =
        run_blocking(move || load_args(&own_args, &own_config, &own_environment, &own_terminal)).await?;
    let LoadedArgs { model: words, recorder, skill_count, variables, inputs, workspace: folder, out } =
        loaded;
    let persistence = if args.ephemeral { Persistence::Ephemeral } else { Persistence::Persistent };
    let (name, model) = (words.name.clone(), Arc::clone(&words.model));
    let options = |config: Config| {
        let options =
            RuntimeOptions::from(config).model(name.clone(), Arc::clone(&model)).approver(rules.approver());
        let options = match std::env::current_dir() {
            Ok(folder) => options.project(folder),
            Err(_) => options,
        };
        words.with_key(options, &environment)
    };
    let host = CommandRuntime::for_run(&args.data_args, persistence, options, config, &environment, terminal)
        .await?;
    let site = ExecutionSite::from_args(args);
    let mut spec = SessionSpec::new(host.tenant.clone())
        .base_prompt(BASE_PROMPT)
        .model(words.name.clone())
        .hosted(args.hosted.clone());
    if site == ExecutionSite::Local {
        spec = spec.sandbox(config.executor().as_str()).inputs(inputs);
        if !args.hosted.is_empty() {
            // Otherwise there would be hosted skills only.
            spec = spec.catalog(CATALOG);
        }
    }
    for (name, value) in variables {
        spec = spec.environment(name, value);
    }
    for (name, value) in sandbox_notes(args).into_iter().chain(words.script_note()).chain(rules.to_notes()) {
        spec = spec.metadata(name, value);
    }
    if let Some(activation) = args.activation {
        spec = spec.activation(activation);
    }
    if let Some(folder) = folder {
        spec = spec.workspace(folder);
    }
    for attached in &args.attach {
        let source = if attached.is_url() {
            RegistrationSource::url(&attached.location)
        } else {
            RegistrationSource::file(&attached.location)
        };
        spec = spec.artifact(&attached.name, source);
    }
    let session = match host.runtime.open(spec).await {
        Ok(session) => session,
        Err(error @ RuntimeError::Artifact { .. }) => {
            return Err(CliError::usage(format!("`--attach`: {error}")));
        }
        Err(error) => return Err(error.into()),
    };
    let id = session.id();
    let folder = host.runtime.workspace(&host.tenant, id).await?;
    let folder = folder.ok_or_else(|| CliError::internal("the session has no folder to work in"))?;
    let owner = if args.workspace.is_some() { WorkspaceOwner::User } else { WorkspaceOwner::Session };
    let workspace = SessionWorkspace::at_real_path(&folder)?;
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
    let (files, before) = add_files(folder.clone(), args.file.clone()).await?;
    opened.before = before;
    let given = prompt_input::standard_input(terminal).await?;
    terminal.styled(Style::Dim, &words.label);
    opened.hosted.print_hosted_skills(terminal);
    let inside = match site {
        ExecutionSite::Local => {
            opened.create_sandbox(config.executor(), terminal).await?;
            let plural = if skill_count == 1 { "" } else { "s" };
            terminal
                .styled(Style::Dim, &format!("{skill_count} skill{plural}; working in {}", folder.display()));
            opened.sandbox_paths(&files).await?
        }
        ExecutionSite::Hosted => Vec::new(),
    };
    let message = prompt_input::message(prompt, &inside, given.as_deref());
    Ok(RunPlan {
        command: TurnCommand::Prompt(message, None),
        recording: ModelRecording { recorder, price_check: words.price_check },
    })
}

/// Where the tools of a run are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExecutionSite {
    Local,
    /// By the model's service only.
    Hosted,
}

impl ExecutionSite {
    fn from_args(args: &RunArgs) -> Self {
        let asks_for_here = args.sandbox.is_some() || !args.skills.is_empty() || args.workspace.is_some();
        if args.hosted.is_empty() || asks_for_here { Self::Local } else { Self::Hosted }
    }
}

/// The error if files cannot be copied, because nothing runs on this machine.
pub(crate) fn no_workspace_error() -> CliError {
    CliError::usage("`--file`: there is no workspace to copy it to, as nothing runs here")
}

/// Loads the model and the skills. Secrets are redacted from here on.
fn load_args(
    args: &RunArgs,
    config: &Config,
    process: &ProcessEnv,
    terminal: &Terminal,
) -> Result<LoadedArgs, CliError> {
    let variables = variables(&args.env)?;
    let source = ModelArgs { model: args.model.as_deref(), script: args.script.as_deref(), calls_before: 0 };
    let words = select_model(source, args.record.as_deref(), config, process)?;
    let skills = load_configured(config, terminal)?;
    let inputs = inputs(&args.input, &skills)?;
    let redactor = redactor(&variables, &words);
    redactor.extend(&redactor_of_inputs(&skills, &inputs, &variables));
    terminal.redact(redactor.clone());
    let workspace = args.workspace.as_deref().map(|folder| real_folder(folder, terminal)).transpose()?;
    let tools = tool_dirs(workspace.as_deref(), config, process);
    let (words, recorder) = with_recorder(words, args.record.as_deref(), redactor, &tools)?;
    warn_missing_inputs(&skills, &inputs, terminal);
    let out = args.out.as_deref().map(|path| output_copy::open_folder(path, &tools)).transpose()?;
    let out = out.map(|folder| OutputTarget { folder, limit: args.out_limit });
    Ok(LoadedArgs { model: words, recorder, skill_count: skills.len(), variables, inputs, workspace, out })
}

/// Warns about skills that cannot be loaded because inputs are missing.
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

/// The real path of the user's folder, so that a later link cannot redirect the session. A link is reported.
fn real_folder(folder: &Path, terminal: &Terminal) -> Result<PathBuf, CliError> {
    let found = SessionWorkspace::existing(folder);
    let found = found.map_err(|error| CliError::from(error).in_option("--workspace"))?;
    if has_symlink(folder) {
        let (named, real) = (folder.to_string_lossy(), found.path().to_string_lossy());
        let (named, real) = (printable(&named), printable(&real));
        terminal.note(&format!("`--workspace {named}` is a link: tools work in {real}"));
    }
    Ok(found.path().to_owned())
}

/// Whether a link is part of the path.
fn has_symlink(path: &Path) -> bool {
    // Without a current folder there are no relative paths either.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.ancestors().any(Path::is_symlink)
}

/// The redactor for the variables and the model's secrets.
pub(crate) fn redactor(variables: &BTreeMap<String, String>, words: &SelectedModel) -> Redactor {
    let (environment, secrets) = (variables.clone(), words.secrets.clone());
    ContextOptions { environment, secrets, ..ContextOptions::default() }.redactor()
}

/// The folders that tools may write: the user's workspace and the data folder.
pub(crate) fn tool_dirs(workspace: Option<&Path>, config: &Config, process: &ProcessEnv) -> ToolDirs {
    let data = config.data().map(Path::to_owned).or_else(|| process.data_folder());
    ToolDirs::new(workspace.into_iter().chain(data.as_deref()))
}

/// A model, and its recorder if there is one.
pub(crate) type RecordedModel = (SelectedModel, Option<Arc<Recorder<Arc<dyn Model>>>>);

/// Adds a recorder to the model, if a recording is wanted.
pub(crate) fn with_recorder(
    mut model: SelectedModel,
    record: Option<&Path>,
    redactor: Redactor,
    tools: &ToolDirs,
) -> Result<RecordedModel, CliError> {
    let Some(path) = record else { return Ok((model, None)) };
    let refused = |told: String| CliError::usage(format!("`--record`: {told}"));
    let (folder, name) = destination::open_parent(path, tools).map_err(|error| refused(error.to_string()))?;
    let recorder = Recorder::create_in(Arc::clone(&model.model), folder.handle, name, path);
    let recorder = Arc::new(recorder.map_err(|error| refused(error.to_string()))?.with_redactor(redactor));
    model.model = Arc::clone(&recorder) as Arc<dyn Model>;
    Ok((model, Some(recorder)))
}

/// Copies files to a workspace. Returns a snapshot before any tool ran.
pub(crate) async fn add_files(
    folder: PathBuf,
    files: Vec<PathBuf>,
) -> Result<(Vec<PathBuf>, WorkspaceSnapshot), CliError> {
    run_blocking(move || {
        let workspace = SessionWorkspace::at_real_path(&folder)?;
        let added = files
            .iter()
            .map(|path| Ok(workspace.add_file(prompt_input::check_file_name(path)?)?))
            .collect::<Result<Vec<PathBuf>, CliError>>()
            .map_err(|failure| failure.in_option("--file"))?;
        Ok((added, workspace.snapshot()))
    })
    .await
}

/// Runs blocking work on a thread for it.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<T, CliError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(CliError::internal(format!("the preparation failed: {error}"))))
}

/// The variables for tools.
pub(crate) fn variables(given: &[Variable]) -> Result<BTreeMap<String, String>, CliError> {
    let mut variables = BTreeMap::new();
    for variable in given {
        let value = match &variable.value {
            Some(value) => value.clone(),
            None => ProcessEnv::var(&variable.name).ok_or_else(|| {
                CliError::new(
                    ExitStatus::Usage,
                    format!("`--env {}`: this variable is not set", variable.name),
                )
                .with_hint("`--env NAME=VALUE` gives its value")
            })?,
        };
        variables.insert(variable.name.clone(), value);
    }
    Ok(variables)
}

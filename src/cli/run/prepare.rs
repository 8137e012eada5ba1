//! Everything that a run needs before the model is called. What cannot be used is told here, before anything has
//! happened; nothing stays of a session that was opened for it then.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::{
    ArtifactSource, Config, ContextOptions, Environment, ExecutorKind, Model, Recorder, Redactor,
    RuntimeError, RuntimeOptions, SessionSpec, Settings, Skill, SkillInputs, Snapshot, Workspace,
    redactor_of_inputs,
};

use crate::cli::approvals::Rules;
use crate::cli::args::{RunArgs, Variable};
use crate::cli::destination::{self, ToolFolders};
use crate::cli::doctor;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::host::{self, Host, Keeping};
use crate::cli::run::input;
use crate::cli::run::kept::notes;
use crate::cli::run::out::{self, Out};
use crate::cli::run::session::{Hosted, Opened, Voice, Whose};
use crate::cli::run::talk::Say;
use crate::cli::run::words::{Source, Words, words};
use crate::cli::skills::{found, inputs};
use crate::cli::terminal::{Style, Terminal, printable};

/// The catalog of the folders that the configuration, or `--skills`, names.
const CATALOG: &str = "default";

/// What the model is told first.
const BASE_PROMPT: &str = "You are a helpful assistant with tools. Use them to find out instead of guessing, and \
                           answer briefly.";

/// What a run needs beside its session.
pub(super) struct Prepared {
    pub(super) say: Say,
    pub(super) voice: Voice,
}

/// The value of `--sandbox` for a first look on any machine: a jail where one can be made.
const JAIL_OR_LOCAL: &str = "jail-or-local";

/// The jail, or `local` where this machine permits none, which is said.
async fn jail_or_local(environment: &Environment, terminal: &Terminal) -> ExecutorKind {
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

/// The configuration with what the command line says laid over it.
pub(super) async fn configured(
    args: &RunArgs,
    config: &Config,
    environment: &Environment,
    terminal: &Terminal,
) -> Result<Config, Failure> {
    let executor = match &args.sandbox {
        Some(kind) if kind == JAIL_OR_LOCAL => Some(jail_or_local(environment, terminal).await),
        Some(kind) => Some(kind.parse::<ExecutorKind>().map_err(|reason| {
            Failure::usage(format!("`--sandbox`: {reason}")).hint("`local` isolates nothing")
        })?),
        None => None,
    };
    let config = host::configured(&args.place, config)?.with(Settings {
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
        return Err(Failure::usage(told).hint("`--sandbox docker` makes a container of one"));
    }
    Ok(config)
}

/// What is found on disk.
struct Gathered {
    words: Words,
    recorder: Option<Arc<Recorder<Arc<dyn Model>>>>,
    known: usize,
    variables: BTreeMap<String, String>,
    inputs: SkillInputs,
    workspace: Option<PathBuf>,
    out: Option<Out>,
}

/// Makes everything ready. The session is in `slot` as soon as there is one.
pub(super) async fn prepare(
    args: &Arc<RunArgs>,
    config: &Config,
    environment: Environment,
    terminal: &Arc<Terminal>,
    slot: &mut Option<Opened>,
) -> Result<Prepared, Failure> {
    let prompt = input::prompt(&args.prompt)?;
    if Runs::of(args) == Runs::Elsewhere && !args.file.is_empty() {
        return Err(no_workspace()
            .hint("`--attach` gives the file to the model's service; `--sandbox` has tools run here, too"));
    }
    let rules = Rules::of(&args.rules)?;
    // Reading and copying blocks, for as long as the files are large: a signal must not wait for that.
    let (own_args, own_config, own_environment, own_terminal) =
        (Arc::clone(args), config.clone(), environment.clone(), Arc::clone(terminal));
    let gathered = blocking(move || gather(&own_args, &own_config, &own_environment, &own_terminal)).await?;
    let Gathered { words, recorder, known, variables, inputs, workspace: folder, out } = gathered;
    let keeping = if args.ephemeral { Keeping::Ephemeral } else { Keeping::Kept };
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
    let host = Host::for_run(&args.place, keeping, options, config, &environment, terminal).await?;
    let runs = Runs::of(args);
    let mut spec = SessionSpec::new(host.tenant.clone())
        .base_prompt(BASE_PROMPT)
        .model(words.name.clone())
        .hosted(args.hosted.clone());
    if runs == Runs::Here {
        spec = spec.sandbox(config.executor().as_str()).inputs(inputs);
        if !args.hosted.is_empty() {
            // Else there would be hosted ones alone.
            spec = spec.catalog(CATALOG);
        }
    }
    for (name, value) in variables {
        spec = spec.environment(name, value);
    }
    for (name, value) in notes(args).into_iter().chain(words.note()).chain(rules.notes()) {
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
            ArtifactSource::url(&attached.place)
        } else {
            ArtifactSource::file(&attached.place)
        };
        spec = spec.artifact(&attached.name, source);
    }
    let session = match host.runtime.open(spec).await {
        Ok(session) => session,
        Err(error @ RuntimeError::Artifact { .. }) => {
            return Err(Failure::usage(format!("`--attach`: {error}")));
        }
        Err(error) => return Err(error.into()),
    };
    let id = session.id();
    let folder = host.runtime.workspace(&host.tenant, id).await?;
    let folder = folder.ok_or_else(|| Failure::internal("the session has no folder to work in"))?;
    let whose = if args.workspace.is_some() { Whose::User } else { Whose::Session };
    let workspace = Workspace::at_real_path(&folder)?;
    let hosted = Hosted { skills: args.hosted.clone(), ..Hosted::default() };
    let opened =
        slot.insert(Opened { host, session, workspace, whose, before: Snapshot::default(), out, hosted });
    let (files, before) = add_files(folder.clone(), args.file.clone()).await?;
    opened.before = before;
    let given = input::standard_input(terminal).await?;
    terminal.styled(Style::Dim, &words.said);
    opened.hosted.tell(terminal);
    let inside = match runs {
        Runs::Here => {
            opened.make_sandbox(config.executor(), terminal).await?;
            let plural = if known == 1 { "" } else { "s" };
            terminal.styled(Style::Dim, &format!("{known} skill{plural}; working in {}", folder.display()));
            opened.inside(&files).await?
        }
        Runs::Elsewhere => Vec::new(),
    };
    let message = input::message(prompt, &inside, given.as_deref());
    Ok(Prepared { say: Say::Prompt(message, None), voice: Voice { recorder, tariff: words.tariff } })
}

/// Whether anything runs on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    Here,
    /// The model's service runs it all.
    Elsewhere,
}

impl Runs {
    fn of(args: &RunArgs) -> Self {
        let asks_for_here = args.sandbox.is_some() || !args.skills.is_empty() || args.workspace.is_some();
        if args.hosted.is_empty() || asks_for_here { Self::Here } else { Self::Elsewhere }
    }
}

/// Why no file can be copied to a session in which nothing runs here.
pub(crate) fn no_workspace() -> Failure {
    Failure::usage("`--file`: there is no workspace to copy it to, as nothing runs here")
}

/// Finds the model and the skills. From here on secrets are redacted.
fn gather(
    args: &RunArgs,
    config: &Config,
    process: &Environment,
    terminal: &Terminal,
) -> Result<Gathered, Failure> {
    let variables = variables(&args.env)?;
    let source = Source { model: args.model.as_deref(), script: args.script.as_deref(), calls_before: 0 };
    let words = words(source, args.record.as_deref(), config, process)?;
    let skills = found(config, terminal)?;
    let inputs = inputs(&args.input, &skills)?;
    let redactor = redactor(&variables, &words);
    redactor.learn(&redactor_of_inputs(&skills, &inputs, &variables));
    terminal.redact(redactor.clone());
    let workspace = args.workspace.as_deref().map(|folder| real_folder(folder, terminal)).transpose()?;
    let tools = tool_folders(workspace.as_deref(), config, process);
    let (words, recorder) = recorded(words, args.record.as_deref(), redactor, &tools)?;
    tell_missing(&skills, &inputs, terminal);
    let out = args.out.as_deref().map(|path| out::folder(path, &tools)).transpose()?;
    let out = out.map(|folder| Out { folder, limit: args.out_limit });
    Ok(Gathered { words, recorder, known: skills.len(), variables, inputs, workspace, out })
}

/// Tells which skills cannot be loaded, as nobody gave what they take. The others do without them.
fn tell_missing(skills: &[Arc<Skill>], inputs: &SkillInputs, terminal: &Terminal) {
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

/// The user's folder, where it really is: a link that leads elsewhere later takes no session along. A link is told.
fn real_folder(folder: &Path, terminal: &Terminal) -> Result<PathBuf, Failure> {
    let found = Workspace::existing(folder);
    let found = found.map_err(|error| Failure::from(error).in_option("--workspace"))?;
    if leads_elsewhere(folder) {
        let (named, real) = (folder.to_string_lossy(), found.path().to_string_lossy());
        let (named, real) = (printable(&named), printable(&real));
        terminal.note(&format!("`--workspace {named}` is a link: tools work in {real}"));
    }
    Ok(found.path().to_owned())
}

/// Whether a link stands in a path, so that its folder is not where the path says.
fn leads_elsewhere(path: &Path) -> bool {
    // Without a current folder there is no relative path either.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.ancestors().any(Path::is_symlink)
}

/// What must not leave.
pub(crate) fn redactor(variables: &BTreeMap<String, String>, words: &Words) -> Redactor {
    let (environment, secrets) = (variables.clone(), words.secrets.clone());
    ContextOptions { environment, secrets, ..ContextOptions::default() }.redactor()
}

/// Where tools may write: the folder of the user's that they work in, and those that the data folder has for sessions.
pub(crate) fn tool_folders(workspace: Option<&Path>, config: &Config, process: &Environment) -> ToolFolders {
    let data = config.data().map(Path::to_owned).or_else(|| process.data_folder());
    ToolFolders::of(workspace.into_iter().chain(data.as_deref()))
}

/// A model whose words are recorded, where that is wanted.
pub(crate) type Recorded = (Words, Option<Arc<Recorder<Arc<dyn Model>>>>);

/// The model, recorded where that is wanted.
pub(crate) fn recorded(
    mut words: Words,
    record: Option<&Path>,
    redactor: Redactor,
    tools: &ToolFolders,
) -> Result<Recorded, Failure> {
    let Some(path) = record else { return Ok((words, None)) };
    let refused = |told: String| Failure::usage(format!("`--record`: {told}"));
    let (folder, name) = destination::file(path, tools).map_err(|error| refused(error.to_string()))?;
    let recorder = Recorder::create_in(Arc::clone(&words.model), folder.handle, name, path);
    let recorder = Arc::new(recorder.map_err(|error| refused(error.to_string()))?.with_redactor(redactor));
    words.model = Arc::clone(&recorder) as Arc<dyn Model>;
    Ok((words, Some(recorder)))
}

/// Copies files to a workspace; what is there then, before any tool ran.
pub(crate) async fn add_files(
    folder: PathBuf,
    files: Vec<PathBuf>,
) -> Result<(Vec<PathBuf>, Snapshot), Failure> {
    blocking(move || {
        let workspace = Workspace::at_real_path(&folder)?;
        let added = files
            .iter()
            .map(|path| Ok(workspace.add_file(input::file(path)?)?))
            .collect::<Result<Vec<PathBuf>, Failure>>()
            .map_err(|failure| failure.in_option("--file"))?;
        Ok((added, workspace.snapshot()))
    })
    .await
}

/// Does what blocks where that is allowed.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Failure::internal(format!("the preparation failed: {error}"))))
}

/// The variables that tools see.
pub(crate) fn variables(given: &[Variable]) -> Result<BTreeMap<String, String>, Failure> {
    let mut variables = BTreeMap::new();
    for variable in given {
        let value = match &variable.value {
            Some(value) => value.clone(),
            None => Environment::passed_on(&variable.name).ok_or_else(|| {
                Failure::new(Exit::Usage, format!("`--env {}`: this variable is not set", variable.name))
                    .hint("`--env NAME=VALUE` gives its value")
            })?,
        };
        variables.insert(variable.name.clone(), value);
    }
    Ok(variables)
}

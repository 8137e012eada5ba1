//! Everything that a run needs before the model is called. What cannot be used is told here, before anything has
//! happened.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use conjure::{
    Config, ContextOptions, DataFolder, Environment, Error, ExecutorKind, Isolation, Message, Model,
    Recorder, SandboxErrorKind, SessionContext, Settings, Sharing, Skill, Snapshot, Workbench,
    create_context,
};

use crate::cli::args::RunArgs;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::run::input;
use crate::cli::run::used::Tariff;
use crate::cli::run::words::{Words, words};
use crate::cli::skills::found;
use crate::cli::terminal::{Style, Terminal};

/// What a run needs.
pub(super) struct Prepared {
    pub(super) workbench: Workbench,
    /// The workspace with the inputs, before any tool ran.
    pub(super) before: Snapshot,
    pub(super) message: Message,
    pub(super) model: Arc<dyn Model>,
    pub(super) recorder: Option<Arc<Recorder<Arc<dyn Model>>>>,
    /// How what the model consumed is told, where it is a live one.
    pub(super) tariff: Option<Tariff>,
}

/// The configuration with what the command line says laid over it.
pub(super) fn configured(args: &RunArgs, config: &Config) -> Result<Config, Failure> {
    let executor = match &args.sandbox {
        Some(kind) => Some(kind.parse::<ExecutorKind>().map_err(|reason| {
            Failure::usage(format!("`--sandbox`: {reason}")).hint("`local` isolates nothing")
        })?),
        None => None,
    };
    let config = config.with(Settings {
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

/// What is found on disk, and put there.
struct Gathered {
    words: Words,
    skills: Vec<Arc<Skill>>,
    context: SessionContext,
    files: Vec<PathBuf>,
}

/// Makes everything ready.
pub(super) async fn prepare(
    args: &Arc<RunArgs>,
    config: &Config,
    environment: Environment,
    terminal: &Arc<Terminal>,
) -> Result<Prepared, Failure> {
    let prompt = input::prompt(&args.prompt)?;
    // Reading and copying blocks, for as long as the files are large: a signal must not wait for that.
    let (own_args, own_config, own_terminal) = (Arc::clone(args), config.clone(), Arc::clone(terminal));
    let gathered =
        tokio::task::spawn_blocking(move || gather(&own_args, &own_config, &environment, &own_terminal))
            .await;
    let Gathered { words, skills, context, files } =
        gathered.map_err(|error| Failure::internal(format!("the preparation failed: {error}")))??;
    let before = context.workspace().snapshot();
    let given = input::standard_input(terminal).await?;
    terminal.styled(Style::Dim, &words.said);
    let (workspace, known) = (context.workspace().path().to_owned(), skills.len());
    let redactor = context.redactor();
    let workbench = Workbench::in_context(skills, config, context).await.map_err(|error| {
        // Refused before anything was tried: the configuration asks for what the sandbox cannot do.
        let is_refused = match &error {
            Error::Container { source: None, .. } => true,
            Error::Container { source: Some(source), .. } => source.kind() == SandboxErrorKind::NotEnforced,
            _ => false,
        };
        let failure = Failure::from(error).hint("`conjure doctor` says what this machine offers");
        if is_refused { Failure { exit: Exit::Usage, hint: None, ..failure } } else { failure }
    })?;
    announce(config.executor(), &workbench.executor().isolation(), terminal);
    if workbench.executor().sharing() == Sharing::Transferred {
        let said = "no folder is shared with the sandbox: files travel there now, and what is produced comes back at the end";
        terminal.styled(Style::Dim, said);
    }
    let plural = if known == 1 { "" } else { "s" };
    terminal.styled(Style::Dim, &format!("{known} skill{plural}; working in {}", workspace.display()));
    // As the sandbox has them.
    let inside = &workbench.executor().layout().workspace;
    let files: Vec<PathBuf> =
        files.iter().map(|file| inside.join(file.strip_prefix(&workspace).unwrap_or(file))).collect();
    let message = Message::user(input::message(prompt, &files, given.as_deref()));
    let (model, recorder): (Arc<dyn Model>, _) = match &args.record {
        None => (words.model, None),
        Some(path) => {
            let recorder = Recorder::create(words.model, path)
                .map_err(|error| Failure::usage(format!("`--record`: {error}")))?
                .with_redactor(redactor);
            let recorder = Arc::new(recorder);
            (Arc::clone(&recorder) as Arc<dyn Model>, Some(recorder))
        }
    };
    Ok(Prepared { workbench, before, message, model, recorder, tariff: words.tariff })
}

/// Finds the model and the skills, and makes the workspace with its inputs. From here on secrets are redacted.
fn gather(
    args: &RunArgs,
    config: &Config,
    process: &Environment,
    terminal: &Terminal,
) -> Result<Gathered, Failure> {
    let environment = variables(args)?;
    let mut words = words(args, config, process)?;
    let skills = found(config, terminal)?;
    let options = ContextOptions {
        workspace: args.workspace.clone(),
        data: data(config, process, terminal),
        environment,
        secrets: std::mem::take(&mut words.secrets),
        ..ContextOptions::default()
    };
    let context = create_context(&skills, config, options).map_err(|error| {
        let is_workspace = matches!(&error, Error::FileNotFound { path, .. } | Error::PermissionDenied { path, .. }
            if args.workspace.as_ref() == Some(path));
        let failure = Failure::from(error);
        if is_workspace { failure.in_option("--workspace") } else { failure }
    })?;
    terminal.redact(context.redactor());
    let files = args
        .file
        .iter()
        .map(|path| Ok(context.workspace().add_file(input::file(path)?)?))
        .collect::<Result<Vec<PathBuf>, Failure>>()
        .map_err(|failure| failure.in_option("--file"))?;
    Ok(Gathered { words, skills, context, files })
}

/// The usual data folder, unless another is configured. Where it cannot be had, a temporary one does, which is said.
fn data(config: &Config, process: &Environment, terminal: &Terminal) -> Option<DataFolder> {
    if config.data().is_some() {
        return None;
    }
    let opened = match process.data_folder() {
        Some(path) => DataFolder::open(&path).map_err(|error| error.to_string()),
        None => Err("neither `XDG_DATA_HOME` nor `HOME` is set".to_owned()),
    };
    opened
        .inspect_err(|reason| {
            terminal.warning(&format!(
                "a temporary folder is used for data (`CONJURE_DATA` names another): {reason}"
            ));
        })
        .ok()
}

/// Says plainly what is isolated and what is not.
fn announce(kind: ExecutorKind, isolation: &Isolation, terminal: &Terminal) {
    let open: Vec<&str> = isolation.open().collect();
    let said = match (kind, open.as_slice()) {
        (ExecutorKind::Local, _) => {
            "the sandbox `local` isolates nothing: commands can do what you can do".to_owned()
        }
        (kind, []) => format!("the sandbox `{}` keeps commands apart from this machine", kind.as_str()),
        (kind, open) => format!(
            "the sandbox `{}` keeps commands apart from this machine; it cannot enforce here: {} (`conjure doctor` \
             says why)",
            kind.as_str(),
            open.join(", ")
        ),
    };
    terminal.styled(Style::Dim, &said);
}

/// The variables that tools see.
fn variables(args: &RunArgs) -> Result<BTreeMap<String, String>, Failure> {
    let mut variables = BTreeMap::new();
    for variable in &args.env {
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

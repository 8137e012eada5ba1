//! `conjure sessions resume` and `conjure sessions decide`: resume an unfinished turn, send a new prompt, or decide
//! on a waiting tool call.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::config::{ExecutorKind, McpServerSpec};
use conjure::runtime::Deadline;
use conjure::session::{
    Redactor, SessionBody, SessionProfile, SessionSecrets, SessionStatus, SessionWorkspace,
};
use conjure::{
    Clock as _, Config, Limits, Model, ProcessEnv, RuntimeOptions, SessionEvent, SessionEventKind, SessionId,
    Settings, SystemClock,
};

use crate::cli::approvals::{Rules, TerminalApprover};
use crate::cli::args::{ContinueArgs, McpServerArgs};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::{CommandRuntime, with_data_dir};
use crate::cli::destination::ToolDirs;
use crate::cli::run::mcp_servers;
use crate::cli::run::{
    CommandSession, DisplayMode, FollowOptions, HostedState, ModelArgs, ModelChange, ModelRecording,
    OutputTarget, RecordedModelProxy, SCRIPT, SelectedModel, TurnCommand, TurnSummary, WorkspaceOwner,
    add_files, check_prompt, hosted_file_ids, message, no_workspace_error, open_out_dir, print_isolation,
    redactor, run_blocking, script_from_notes, select_model, settings_from_notes, standard_input,
    timeout_error, tool_dirs, unanswered_error, undecided_error, variables, with_recorder,
};
use crate::cli::sessions::command::read_only_runtime;
use crate::cli::sessions::find::find;
use crate::cli::sessions::resume_request::{Prompt, ResumeAction, ResumeRequest, find_pending_call};
use crate::cli::signals::Signals;
use crate::cli::terminal::{Style, Terminal};

/// The kind of sandbox of a session without tools on this machine.
const NO_SANDBOX: &str = "none";

/// The recorded data of a session, before it is started.
struct LoadedSession {
    id: SessionId,
    profile: SessionProfile,
    status: SessionStatus,
    /// The number of events.
    events: u64,
    /// The number of finished model calls.
    calls: usize,
    /// The summary of the events.
    summary: TurnSummary,
    /// The ids of the session's files at the model's service.
    known_files: HashSet<String>,
}

/// What to do with the session.
pub(crate) struct ResumePlan {
    pub(crate) opened: CommandSession,
    pub(crate) commands: Vec<TurnCommand>,
    pub(crate) recording: ModelRecording,
    pub(crate) summary: TurnSummary,
    /// The name of the model in the session.
    pub(crate) model_name: String,
    /// A description of the model in one line.
    pub(crate) model_label: String,
    /// The change to the model of `--model`, after the turn in progress.
    pub(crate) model_change: Option<ModelChange>,
}

/// Resumes the session.
pub(super) async fn resume(
    request: ResumeRequest,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Arc<Terminal>,
) -> Result<ExitStatus, CliError> {
    let mut signals = Signals::catch()?;
    let going = &request.args;
    let deadline = going.timeout.map_or(Deadline::NEVER, |timeout| SystemClock.deadline(timeout));
    if let ResumeAction::Prompt(Prompt { text, .. }) = &request.action {
        check_prompt(text)?;
    }
    let mode = if going.json { DisplayMode::Events } else { DisplayMode::Lines };
    let request = Arc::new(request);
    let prepared = tokio::select! {
        prepared = prepare_resume(&request, config, environment, terminal) => prepared?,
        exit = signals.next() => return Ok(exit),
        () = SystemClock.sleep_until(deadline) => return Err(timeout_error()),
    };
    let ResumePlan { opened, commands, recording, summary, model_change, .. } = prepared;
    let options = FollowOptions { mode, deadline, summary, model_change };
    opened.run_turns(commands, recording, options, &mut signals, terminal).await
}

/// The servers of the command line and of the project, if the session has MCP servers. They take precedence over the configured servers.
fn mcp_servers_of(
    args: &McpServerArgs,
    profile: &SessionProfile,
    config: &Config,
    terminal: &Terminal,
) -> Result<BTreeMap<String, McpServerSpec>, CliError> {
    let names = &profile.mcp_servers;
    if let Some(other) = args.mcp.iter().find(|server| !names.iter().any(|name| name == server.name.as_str()))
    {
        let told = format!("`--mcp`: the session was opened without an MCP server `{}`", other.name);
        let hint = match names.as_slice() {
            [] => "it has none; open a new session with it".to_owned(),
            names => format!("its servers are `{}`", names.join("`, `")),
        };
        return Err(CliError::usage(told).with_hint(hint));
    }
    if !names.is_empty() {
        return mcp_servers(args, config, terminal);
    }
    match args.mcp_config.is_empty() {
        true => Ok(BTreeMap::new()),
        false => Err(CliError::usage("`--mcp-config`: the session was opened without MCP servers")
            .with_hint("open a new session with them")),
    }
}

/// Loads the session and starts it. An unfinished turn continues.
pub(crate) async fn prepare_resume(
    request: &Arc<ResumeRequest>,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Arc<Terminal>,
) -> Result<ResumePlan, CliError> {
    let going = &request.args;
    let LoadedSession { id, profile, status, events, calls, summary, known_files } =
        load_session(request, config, environment, terminal).await?;
    let decision = match &request.action {
        ResumeAction::Decide(named, verdict) => {
            let call = find_pending_call(id, summary.pending_calls(), named)?;
            Some((call.id.clone(), verdict.decision_for(call)?))
        }
        ResumeAction::Continue | ResumeAction::Converse | ResumeAction::Prompt(_) => None,
    };
    let runs_here = profile.executor.as_deref() != Some(NO_SANDBOX);
    if let ResumeAction::Prompt(Prompt { files, .. }) = &request.action
        && !runs_here
        && !files.is_empty()
    {
        return Err(
            no_workspace_error().with_hint("`conjure run --attach` gives files to the model's service")
        );
    }
    let rules = Rules::from_args(&request.rules)?.merged_over(Rules::from_notes(&profile.metadata));
    let kind = profile.executor.as_deref().and_then(|kind| kind.parse::<ExecutorKind>().ok());
    let kept = settings_from_notes(&profile.metadata)?;
    let config = with_data_dir(&going.data_args, config)?.with(Settings {
        executor: kind,
        tool_timeout: going.tool_timeout,
        mcp: mcp_servers_of(&going.mcp, &profile, config, terminal)?,
        ..kept
    })?;
    let (own_request, own_config, own_environment, own_profile, own_terminal) =
        (Arc::clone(request), config.clone(), environment.clone(), profile.clone(), Arc::clone(terminal));
    let gathered = run_blocking(move || {
        load_args(&own_request.args, &own_config, &own_environment, (&own_profile, calls), &own_terminal)
    });
    let LoadedArgs { model: selected, own_model, recording, variables, inputs, tools } = gathered.await?;
    let recorded = profile.model.clone().unwrap_or_else(|| selected.name.clone());
    let is_changed = going.model.is_some() && recorded != selected.name;
    let former = Arc::new(RecordedModelProxy::new(Arc::clone(&selected.model), own_model));
    let options = |config: Config| {
        let recorded_model =
            if is_changed { Arc::clone(&former) as Arc<dyn Model> } else { Arc::clone(&selected.model) };
        let options = RuntimeOptions::from(config)
            .model(recorded.clone(), recorded_model)
            .model(selected.name.clone(), Arc::clone(&selected.model))
            .approver(rules.approver());
        selected.with_key(options, environment)
    };
    let host = CommandRuntime::for_sessions(&going.data_args, options, &config, environment).await?;
    let dir = host.runtime.workspace(&host.tenant, id).await?;
    let dir: PathBuf = dir.ok_or_else(|| CliError::internal("the session has no directory to work in"))?;
    let owner = if profile.workspace.is_some() { WorkspaceOwner::User } else { WorkspaceOwner::Session };
    let workspace = SessionWorkspace::at_real_path(&dir).map_err(|error| {
        CliError::usage(format!("the directory that the session works in cannot be used: {error}"))
            .with_hint("put it back where it was, or begin another session: `conjure run --workspace DIR`")
    })?;
    let out = match going.out.clone() {
        Some(out) => {
            let tools = Arc::clone(&tools);
            let dir = run_blocking(move || open_out_dir(&out, &tools)).await?;
            Some(OutputTarget { dir, limit: going.out_limit })
        }
        None => None,
    };
    let (files, text) = match &request.action {
        ResumeAction::Prompt(prompt) => (prompt.files.clone(), standard_input(terminal).await?),
        ResumeAction::Continue | ResumeAction::Converse | ResumeAction::Decide(..) => (Vec::new(), None),
    };
    let (files, before) = add_files(dir, files, tools).await?;
    let given = variables
        .into_iter()
        .fold(SessionSecrets::new(), |given, (name, value)| given.environment(name, value));
    let given = inputs.into_iter().fold(given, |given, (name, text)| given.input_text(name, text));
    // This resumes an unfinished turn.
    let session = host.runtime.session_with(&host.tenant, id, given).await?;
    let snapshot = session.snapshot().await?;
    let goes_on =
        !matches!(status, SessionStatus::Idle) || snapshot.events > events || !snapshot.queue.is_empty();
    if !goes_on && matches!(request.action, ResumeAction::Continue) {
        let _ = host.shut_down().await;
        return Err(CliError::usage(format!("nothing was under way in the session {id}"))
            .with_hint(format!("say what you want now: {} \"And by quarter?\"", host.resume_command(id))));
    }
    let name = if is_changed { selected.name.clone() } else { recorded };
    let mut model_change = is_changed.then(|| ModelChange::new(name.clone(), former));
    if !goes_on && let Some(change) = model_change.take() {
        change.apply(&session).await?;
    }
    terminal.styled(Style::Dim, &selected.label);
    let hosted = HostedState { skills: profile.hosted.clone(), known_files };
    let opened = CommandSession { host, session, workspace, owner, before, out, hosted };
    match (kind, goes_on) {
        (Some(kind), false) => opened.create_sandbox(kind, terminal).await?,
        (Some(kind), true) => print_isolation(kind, &opened.session.executor().await?.isolation(), terminal),
        (None, _) => {}
    }
    opened.hosted.print_hosted_skills(terminal);
    if runs_here {
        opened.print_workspace(profile.skills.len(), terminal);
    }
    let mut commands = Vec::new();
    match decision {
        Some((call, decision)) => commands.push(TurnCommand::Decide(call, decision, events)),
        None if goes_on => {
            terminal.styled(Style::Dim, "what was under way continues");
            commands.push(TurnCommand::Continue(events));
        }
        None => {}
    }
    if let ResumeAction::Prompt(Prompt { text: prompt, max_turns, .. }) = &request.action {
        let input = message(prompt, &opened.sandbox_paths(&files).await?, text.as_deref());
        let limits = max_turns.map(|calls| Limits { model_calls: calls, ..profile.limits.clone() });
        commands.push(TurnCommand::Prompt(input, limits));
    }
    let model_label = selected.label;
    Ok(ResumePlan { opened, commands, recording, summary, model_name: name, model_label, model_change })
}

/// Finds the session, and loads its recorded data.
async fn load_session(
    request: &ResumeRequest,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Arc<Terminal>,
) -> Result<LoadedSession, CliError> {
    let host = read_only_runtime(&request.args.data_args, config, environment, |options| options).await?;
    let found = async {
        let id = find(&host, &request.id).await?;
        let profile = host.runtime.profile(&host.tenant, id).await?;
        let recorded = host.runtime.summary(&host.tenant, id).await?;
        let status = match recorded.body {
            SessionBody::Ok(contents) => contents.status,
            SessionBody::Corrupt { reason } => return Err(CliError::internal(reason)),
            _ => SessionStatus::Idle,
        };
        let told = host.runtime.events(&host.tenant, id, 0).await?;
        let before = told.iter().filter(|event| event.seq < recorded.events);
        let known_files = hosted_file_ids(before.clone());
        let has_ended =
            |event: &&SessionEvent| matches!(event.kind, SessionEventKind::ModelRequestEnd { .. });
        let calls = before.clone().filter(has_ended).count();
        let summary = TurnSummary::from_history(before);
        let decides = matches!(request.action, ResumeAction::Decide(..))
            || TerminalApprover::for_terminal(terminal).is_some();
        match summary.pending_calls() {
            // This error needs no started session: a call awaits approval, and no decision is possible.
            [call, ..] if !decides => Err(undecided_error(&host, id, call)),
            [] if !decides && !summary.pending_inputs().is_empty() => {
                Err(unanswered_error(&host, id, &summary.pending_inputs()[0]))
            }
            _ => Ok(LoadedSession {
                id,
                profile,
                status,
                events: recorded.events,
                calls,
                summary,
                known_files,
            }),
        }
    };
    let found = found.await;
    let _ = host.shut_down().await;
    found
}

/// The options of the command line, loaded and checked.
struct LoadedArgs {
    model: SelectedModel,
    /// The session's recorded model, if the user selected another one.
    own_model: Option<Arc<dyn Model>>,
    recording: ModelRecording,
    variables: BTreeMap<String, String>,
    /// The values of `--input`, by name.
    inputs: Vec<(String, String)>,
    tools: Arc<ToolDirs>,
}

/// Selects the model. Secrets are redacted from here on.
fn load_args(
    args: &ContinueArgs,
    config: &Config,
    environment: &ProcessEnv,
    (profile, calls): (&SessionProfile, usize),
    terminal: &Terminal,
) -> Result<LoadedArgs, CliError> {
    let variables = variables(&args.env)?;
    let (model, script) = (args.model.as_deref(), args.script.as_deref());
    let model = match (model, script, profile.model.as_deref()) {
        (None, None, Some(SCRIPT) | None) => {
            return Err(no_model_error(script_from_notes(&profile.metadata)));
        }
        (None, None, recorded) => recorded,
        (model, _, _) => model,
    };
    let record = args.record.as_deref();
    // The session's own script continues. Another script starts at its beginning.
    let is_own = || {
        let own = Path::new(script_from_notes(&profile.metadata)?).canonicalize().ok()?;
        Some(own == script?.canonicalize().ok()?)
    };
    let calls_before = if is_own().unwrap_or(false) { calls } else { 0 };
    let selected = select_model(ModelArgs { model, script, calls_before }, record, config, environment)?;
    let is_other = |own: &&str| args.model.is_some() && *own != selected.name;
    let own_model = profile.model.as_deref().filter(is_other).and_then(|own| {
        let own = ModelArgs { model: Some(own), script: None, calls_before: 0 };
        // If it cannot be created, for example without its key, it cannot be selected later either.
        select_model(own, None, config, environment).ok().map(|own| own.model)
    });
    let mut known = profile.environment.clone();
    known.extend(variables.clone());
    let redactor = redactor(&known, &selected, config, environment);
    let withheld = profile.secret_names.environment.iter().filter_map(|name| Some((name, known.get(name)?)));
    let tools = tool_dirs(profile.workspace.as_deref(), config, environment);
    let inputs = args.input.iter().map(|input| Ok((input.name.clone(), input.text(&tools)?)));
    let inputs = inputs.collect::<Result<Vec<_>, CliError>>()?;
    let secrets = withheld.map(|(name, value)| (name.clone(), value.clone())).chain(inputs.iter().cloned());
    redactor.extend(&Redactor::new(secrets));
    terminal.redact(redactor.clone());
    let (mut selected, recorder) = with_recorder(selected, record.map(Path::new), redactor, &tools)?;
    let price_check = selected.price_check.take();
    let recording = ModelRecording { recorder, price_check };
    Ok(LoadedArgs { model: selected, own_model, recording, variables, inputs, tools: Arc::new(tools) })
}

fn no_model_error(noted: Option<&str>) -> CliError {
    let told = match noted {
        Some(path) => format!("the session's words came from the script `{path}`"),
        None => "no model is named: use `--model NAME` or `--script FILE`".to_owned(),
    };
    CliError::usage(told).with_hint(
        "`--script FILE` plays a script: its own continues, another begins; `--model NAME` calls a model",
    )
}

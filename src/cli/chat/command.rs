//! `conjure chat`: opens or resumes a session, runs the conversation, and closes the session.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use conjure::model::BlockKind;
use conjure::{Config, ProcessEnv, SessionEvent, SessionEventKind, Skill};
use tokio_util::sync::CancellationToken;

use crate::cli::approvals::{ReplyReader, TerminalApprover};
use crate::cli::args::{ChatArgs, ContinueArgs, NewSessionArgs};
use crate::cli::chat::chat_display::ChatDisplay;
use crate::cli::chat::chat_model::{ChatModel, NamedModel, RecordingState};
use crate::cli::chat::conversation::{ChatConversation, ConversationEnd};
use crate::cli::chat::help::{WELCOME, no_model_error};
use crate::cli::chat::line_input::{InputKind, LineInput};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::with_data_dir;
use crate::cli::run::open_session;
use crate::cli::run::{
    Closing, CommandSession, ModelChange, ModelRecording, SessionFiles, TurnCommand, TurnSummary,
    finish_recording, merge_args, run_blocking, shorten_to, start_printer, tool_dirs,
};
use crate::cli::sessions::{ResumeAction, ResumePlan, ResumeRequest, prepare_resume};
use crate::cli::signals::Signals;
use crate::cli::terminal::{Style, Terminal};

/// The width reserved for the text before a message and for the end of a line.
const LABEL_WIDTH: usize = 16;

/// How a conversation starts.
struct ChatStart {
    /// A resumed session.
    opened: Option<CommandSession>,
    /// Turns in progress.
    commands: Vec<TurnCommand>,
    /// The change to another model after those turns.
    model_change: Option<ModelChange>,
    recording: ModelRecording,
    summary: TurnSummary,
    model: NamedModel,
    skills: Vec<Arc<Skill>>,
    /// The user's earlier messages.
    history: Vec<String>,
    origin: SessionOrigin,
}

/// The origin of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionOrigin {
    New,
    Resumed,
}

/// Runs the command.
pub(crate) async fn chat(
    args: ChatArgs,
    config: Config,
    environment: ProcessEnv,
    terminal: Arc<Terminal>,
) -> Result<ExitStatus, CliError> {
    let (config, environment, terminal) = (&config, &environment, &terminal);
    let kind = InputKind::of_process();
    let mut signals = Signals::catch()?;
    let data_config = with_data_dir(&args.new_session.data_args, config)?;
    let mut slot = None;
    let preparation = async {
        match args.resume {
            Some(id) => resume(id, args.new_session, config, environment, terminal).await,
            None => open(&args.new_session, config, environment, terminal, &mut slot).await,
        }
    };
    let prepared = tokio::select! {
        prepared = preparation => prepared.map_err(Err),
        exit = signals.next() => Err(Ok(exit)),
    };
    let start = match prepared {
        Ok(start) => start,
        Err(ended) => {
            if let Some(opened) = slot {
                tokio::select! {
                    () = opened.discard() => {}
                    _ = signals.next() => {}
                }
            }
            return ended;
        }
    };
    let ChatStart { commands, model_change, recording, summary, model, skills, history, origin, opened } =
        start;
    let Some(mut opened) = opened.or(slot) else {
        return Err(CliError::internal("the session is not there"));
    };
    let ModelRecording { recorder, price_check } = recording;
    let recording = if recorder.is_some() { RecordingState::Recorded } else { RecordingState::NotRecorded };
    let input = Arc::new(LineInput::new(kind, &history, terminal)?);
    let output_closed = CancellationToken::new();
    let display = ChatDisplay::new(output_closed.clone());
    let (events, printer) = start_printer(Arc::clone(terminal), display);
    let (workspace, config, process) =
        (opened.workspace.path().to_owned(), data_config.clone(), environment.clone());
    let tools = run_blocking(move || Ok(tool_dirs(Some(&workspace), &config, &process))).await?;
    if kind.is_person() {
        terminal.styled(Style::Dim, WELCOME);
    }
    let mut conversation = ChatConversation {
        opened: &mut opened,
        kind,
        input: Arc::clone(&input),
        terminal,
        environment,
        events: Arc::new(events),
        output_closed,
        approver: approver(kind, &input, terminal),
        summary,
        config: &data_config,
        model: ChatModel::new(model, recording, price_check),
        skills,
        tools: Arc::new(tools),
        attached: Vec::new(),
        has_turns: origin == SessionOrigin::Resumed,
        first_failure: None,
    };
    let ConversationEnd { exit, wait } = conversation.run(commands, model_change, &mut signals).await;
    let (usage, has_turns) = (*conversation.summary.usage(), conversation.has_turns);
    // The printer ends only after all senders are dropped. Dropping the input restores the terminal.
    let price_check = conversation.into_model().into_price_check();
    drop(input);
    if has_turns {
        let signal = matches!(exit, ExitStatus::Interrupted | ExitStatus::Terminated).then_some(exit);
        let resume_command = opened.host.chat_command(opened.session.id());
        let closing = Closing { wait, signal, usage, price_check, resume_command };
        opened.close(printer, closing, &mut signals, terminal).await;
    } else {
        tokio::select! {
            () = opened.discard() => {}
            _ = signals.next() => {}
        }
    }
    finish_recording(recorder.as_deref(), Ok(exit), terminal)
}

/// The approver of tool calls: the user at the terminal, if there is one who sees the questions.
fn approver(
    kind: InputKind,
    input: &Arc<LineInput>,
    terminal: &Arc<Terminal>,
) -> Option<Arc<TerminalApprover>> {
    let can_be_asked = kind.is_person() && io::stderr().is_terminal();
    let replies = Arc::clone(input) as Arc<dyn ReplyReader>;
    can_be_asked.then(|| Arc::new(TerminalApprover::with_replies(terminal, replies)))
}

/// Opens a session.
async fn open(
    args: &NewSessionArgs,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Arc<Terminal>,
    slot: &mut Option<CommandSession>,
) -> Result<ChatStart, CliError> {
    if args.model.is_none() && args.script.is_none() && config.model().is_none() {
        return Err(no_model_error());
    }
    let config = merge_args(args, config, environment, terminal).await?;
    let files = SessionFiles::default();
    let new = open_session(args, files, &config, environment.clone(), terminal, slot).await?;
    if let Some(opened) = slot {
        new.create_sandbox(opened, terminal).await?;
    }
    Ok(ChatStart {
        opened: None,
        commands: Vec::new(),
        model_change: None,
        recording: new.recording,
        summary: TurnSummary::default(),
        model: NamedModel { name: new.model_name, label: new.model_label },
        skills: new.skills,
        history: Vec::new(),
        origin: SessionOrigin::New,
    })
}

/// Resumes a session.
async fn resume(
    id: String,
    args: NewSessionArgs,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Arc<Terminal>,
) -> Result<ChatStart, CliError> {
    let NewSessionArgs { model, script, env, input, mcp, rules, tool_timeout, record, data_args, .. } = args;
    let args = ContinueArgs {
        model,
        script,
        env,
        input,
        mcp,
        json: false,
        timeout: None,
        tool_timeout,
        record,
        out: None,
        out_limit: 0,
        data_args,
    };
    let request = ResumeRequest { id, action: ResumeAction::Converse, rules, args };
    let plan = prepare_resume(&Arc::new(request), config, environment, terminal).await?;
    let ResumePlan { opened, commands, recording, summary, model_name, model_label, model_change } = plan;
    let (runtime, tenant) = (&opened.host.runtime, &opened.host.tenant);
    let events = runtime.events(tenant, opened.session.id(), 0).await?;
    let history: Vec<String> = events.iter().filter_map(user_text).collect();
    let last_answer = opened.session.snapshot().await?.last_text;
    print_last_exchange(history.last(), &last_answer, terminal);
    Ok(ChatStart {
        opened: Some(opened),
        commands,
        model_change,
        recording,
        summary,
        model: NamedModel { name: model_name, label: model_label },
        skills: Vec::new(),
        history,
        origin: SessionOrigin::Resumed,
    })
}

/// The text of a message of the user.
fn user_text(event: &SessionEvent) -> Option<String> {
    let SessionEventKind::UserMessage { content, .. } = &event.kind else { return None };
    // Later blocks were added by a command.
    match content.first()?.kind() {
        BlockKind::Text(text) => Some(text.clone()),
        _ => None,
    }
}

/// Prints the last question and answer.
fn print_last_exchange(question: Option<&String>, answer: &str, terminal: &Terminal) {
    let Some(question) = question else { return };
    let room = terminal.columns().saturating_sub(LABEL_WIDTH).max(LABEL_WIDTH);
    terminal.styled(Style::Dim, &format!("you said:     {}", shorten_to(question, room)));
    if !answer.trim().is_empty() {
        terminal.styled(Style::Dim, &format!("the model:    {}", shorten_to(answer, room)));
    }
}

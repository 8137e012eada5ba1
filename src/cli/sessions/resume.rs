//! `conjure sessions resume` and `conjure sessions decide`: going on with what was under way, with a new prompt, or with a
//! person's decision on a tool call that waits for it.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::{
    Clock as _, Config, Contents, Deadline, Environment, ExecutorKind, Given, Limits, Profile, Redactor,
    RuntimeOptions, SessionEvent, SessionEventKind, SessionId, SessionStatus, Settings, SystemClock,
    Workspace,
};

use crate::cli::approvals::{Person, Rules};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::host::{Host, configured};
use crate::cli::run::{
    Chronicle, Hosted, Manner, Opened, Out, SCRIPT, Say, Show, Source, Voice, Whose, Words, add_files,
    announce, blocking, message, no_workspace, nobody_decides, noted, of_service, out_folder, out_of_time,
    prompt, recorded, redactor, settings, standard_input, tool_folders, variables, words,
};
use crate::cli::session_args::GoingArgs;
use crate::cli::sessions::find::find;
use crate::cli::sessions::reader;
use crate::cli::sessions::wanted::{Prompt, Wanted, What, waiting_call};
use crate::cli::signals::Signals;
use crate::cli::terminal::{Style, Terminal};

/// The sandbox of sessions in which nothing runs here.
const NOTHING: &str = "none";

/// What is known of a session before it is started.
struct Found {
    id: SessionId,
    profile: Profile,
    status: SessionStatus,
    /// How many events it holds.
    events: u64,
    /// How many calls of the model have ended in it.
    calls: usize,
    /// What they come to.
    chronicle: Chronicle,
    /// The ids of the files that the model's service keeps of it.
    known: HashSet<String>,
}

/// What is done with it.
struct Prepared {
    opened: Opened,
    says: Vec<Say>,
    voice: Voice,
    chronicle: Chronicle,
}

/// Goes on with the session.
pub(super) async fn resume(
    wanted: Wanted,
    config: &Config,
    environment: &Environment,
    terminal: &Arc<Terminal>,
) -> Result<Exit, Failure> {
    let mut signals = Signals::catch()?;
    let going = &wanted.going;
    let deadline = going.timeout.map_or(Deadline::NEVER, |timeout| SystemClock.deadline(timeout));
    if let What::Prompt(Prompt { text, .. }) = &wanted.what {
        prompt(text)?;
    }
    let show = if going.json { Show::Events } else { Show::Progress };
    let wanted = Arc::new(wanted);
    let prepared = tokio::select! {
        prepared = prepare(&wanted, config, environment, terminal) => prepared?,
        exit = signals.next() => return Ok(exit),
        () = SystemClock.sleep_until(deadline) => return Err(out_of_time()),
    };
    let Prepared { opened, says, voice, chronicle } = prepared;
    opened.talk(says, voice, Manner { show, deadline, chronicle }, &mut signals, terminal).await
}

async fn prepare(
    wanted: &Arc<Wanted>,
    config: &Config,
    environment: &Environment,
    terminal: &Arc<Terminal>,
) -> Result<Prepared, Failure> {
    let going = &wanted.going;
    let Found { id, profile, status, events, calls, chronicle, known } =
        look(wanted, config, environment, terminal).await?;
    let decision = match &wanted.what {
        What::Decide(named, verdict) => {
            let call = waiting_call(id, chronicle.waiting(), named)?;
            Some((call.id.clone(), verdict.on(call)?))
        }
        What::GoOn | What::Prompt(_) => None,
    };
    let runs_here = profile.executor.as_deref() != Some(NOTHING);
    if let What::Prompt(Prompt { files, .. }) = &wanted.what
        && !runs_here
        && !files.is_empty()
    {
        return Err(no_workspace().hint("`conjure run --attach` gives files to the model's service"));
    }
    let rules = Rules::of(&wanted.rules)?.over(Rules::noted(&profile.metadata));
    let kind = profile.executor.as_deref().and_then(|kind| kind.parse::<ExecutorKind>().ok());
    let kept = settings(&profile.metadata)?;
    let config = configured(&going.place, config)?.with(Settings {
        executor: kind,
        tool_timeout: going.tool_timeout,
        ..kept
    })?;
    let (own_wanted, own_config, own_environment, own_profile, own_terminal) =
        (Arc::clone(wanted), config.clone(), environment.clone(), profile.clone(), Arc::clone(terminal));
    let gathered = blocking(move || {
        gather(&own_wanted.going, &own_config, &own_environment, (&own_profile, calls), &own_terminal)
    });
    let (words, voice, variables) = gathered.await?;
    let name = profile.model.clone().unwrap_or_else(|| words.name.clone());
    let options = |config: Config| {
        let options = RuntimeOptions::from(config)
            .model(name.clone(), Arc::clone(&words.model))
            .approver(rules.approver());
        words.with_key(options, environment)
    };
    let host = Host::for_sessions(&going.place, options, &config, environment).await?;
    let folder = host.runtime.workspace(&host.tenant, id).await?;
    let folder: PathBuf = folder.ok_or_else(|| Failure::internal("the session has no folder to work in"))?;
    let whose = if profile.workspace.is_some() { Whose::User } else { Whose::Session };
    let workspace = Workspace::at_real_path(&folder).map_err(|error| {
        Failure::usage(format!("the folder that the session works in cannot be used: {error}"))
            .hint("put it back where it was, or begin another session: `conjure run --workspace DIR`")
    })?;
    let out = match going.out.clone() {
        Some(out) => {
            let tools = tool_folders(profile.workspace.as_deref(), &config, environment);
            let folder = blocking(move || out_folder(&out, &tools)).await?;
            Some(Out { folder, limit: going.out_limit })
        }
        None => None,
    };
    let (files, text) = match &wanted.what {
        What::Prompt(prompt) => (prompt.files.clone(), standard_input(terminal).await?),
        What::GoOn | What::Decide(..) => (Vec::new(), None),
    };
    let (files, before) = add_files(folder.clone(), files).await?;
    let given =
        variables.into_iter().fold(Given::new(), |given, (name, value)| given.environment(name, value));
    let given =
        going.input.iter().fold(given, |given, input| given.input_text(&input.name, input.text.as_str()));
    // What was under way goes on now.
    let session = host.runtime.session_with(&host.tenant, id, given).await?;
    let snapshot = session.snapshot().await?;
    let goes_on =
        !matches!(status, SessionStatus::Idle) || snapshot.events > events || !snapshot.queue.is_empty();
    if !goes_on && matches!(wanted.what, What::GoOn) {
        let _ = host.end().await;
        return Err(Failure::usage(format!("nothing was under way in the session {id}"))
            .hint(format!("say what you want now: {} \"And by quarter?\"", host.resuming(id))));
    }
    terminal.styled(Style::Dim, &words.said);
    let hosted = Hosted { skills: profile.hosted.clone(), known };
    let opened = Opened { host, session, workspace, whose, before, out, hosted };
    match (kind, goes_on) {
        (Some(kind), false) => opened.make_sandbox(kind, terminal).await?,
        (Some(kind), true) => announce(kind, &opened.session.executor().await?.isolation(), terminal),
        (None, _) => {}
    }
    opened.hosted.tell(terminal);
    if runs_here {
        let skills = profile.skills.len();
        let plural = if skills == 1 { "" } else { "s" };
        terminal.styled(Style::Dim, &format!("{skills} skill{plural}; working in {}", folder.display()));
    }
    let mut says = Vec::new();
    match decision {
        Some((call, decision)) => says.push(Say::Decide(call, decision, events)),
        None if goes_on => {
            terminal.styled(Style::Dim, "what was under way goes on");
            says.push(Say::GoOn(events));
        }
        None => {}
    }
    if let What::Prompt(Prompt { text: words, max_turns, .. }) = &wanted.what {
        let input = message(words, &opened.inside(&files).await?, text.as_deref());
        let limits = max_turns.map(|calls| Limits { model_calls: calls, ..profile.limits.clone() });
        says.push(Say::Prompt(input, limits));
    }
    Ok(Prepared { opened, says, voice, chronicle })
}

/// Finds the session and what is recorded of it.
async fn look(
    wanted: &Wanted,
    config: &Config,
    environment: &Environment,
    terminal: &Arc<Terminal>,
) -> Result<Found, Failure> {
    let host = reader(&wanted.going.place, config, environment, |options| options).await?;
    let found = async {
        let id = find(&host, &wanted.id).await?;
        let profile = host.runtime.profile(&host.tenant, id).await?;
        let summary = host.runtime.summary(&host.tenant, id).await?;
        let status = match summary.contents {
            Contents::Read(contents) => contents.status,
            Contents::Unreadable { reason } => return Err(Failure::internal(reason)),
            _ => SessionStatus::Idle,
        };
        let told = host.runtime.events(&host.tenant, id, 0).await?;
        let before = told.iter().filter(|event| event.seq < summary.events);
        let known = of_service(before.clone());
        let has_ended =
            |event: &&SessionEvent| matches!(event.kind, SessionEventKind::ModelRequestEnd { .. });
        let calls = before.clone().filter(has_ended).count();
        let chronicle = Chronicle::after(before);
        let decides = matches!(wanted.what, What::Decide(..)) || Person::at(terminal).is_some();
        match chronicle.waiting() {
            // Nothing needs to be started to know that nobody decides.
            [call, ..] if !decides => Err(nobody_decides(&host, id, call)),
            _ => Ok(Found { id, profile, status, events: summary.events, calls, chronicle, known }),
        }
    };
    let found = found.await;
    let _ = host.end().await;
    found
}

/// Finds who speaks. From here on secrets are redacted.
fn gather(
    args: &GoingArgs,
    config: &Config,
    environment: &Environment,
    (profile, calls): (&Profile, usize),
    terminal: &Terminal,
) -> Result<(Words, Voice, BTreeMap<String, String>), Failure> {
    let variables = variables(&args.env)?;
    let (model, script) = (args.model.as_deref(), args.script.as_deref());
    let model = match (model, script, profile.model.as_deref()) {
        (None, None, Some(SCRIPT) | None) => return Err(without_script(noted(&profile.metadata))),
        (None, None, recorded) => recorded,
        (model, _, _) => model,
    };
    let record = args.record.as_deref();
    // Its own script goes on; another begins.
    let is_own = || {
        let own = Path::new(noted(&profile.metadata)?).canonicalize().ok()?;
        Some(own == script?.canonicalize().ok()?)
    };
    let calls_before = if is_own().unwrap_or(false) { calls } else { 0 };
    let words = words(Source { model, script, calls_before }, record, config, environment)?;
    let mut known = profile.environment.clone();
    known.extend(variables.clone());
    let redactor = redactor(&known, &words);
    let withheld = profile.withheld.environment.iter().filter_map(|name| Some((name, known.get(name)?)));
    let inputs = args.input.iter().map(|input| (&input.name, &input.text));
    redactor.learn(&Redactor::new(withheld.chain(inputs).map(|(name, value)| (name.clone(), value.clone()))));
    terminal.redact(redactor.clone());
    let tools = tool_folders(profile.workspace.as_deref(), config, environment);
    let (mut words, recorder) = recorded(words, record.map(Path::new), redactor, &tools)?;
    let tariff = words.tariff.take();
    Ok((words, Voice { recorder, tariff }, variables))
}

fn without_script(noted: Option<&str>) -> Failure {
    let told = match noted {
        Some(path) => format!("the session's words came from the script `{path}`"),
        None => "where the model's words come from must be said".to_owned(),
    };
    Failure::usage(told)
        .hint("`--script FILE` plays a script: its own goes on, another begins; `--model NAME` calls a model")
}

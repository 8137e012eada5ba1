//! The fixture of the runtime tests: a host with its own directories, and a model whose responses depend only on its requests, so that
//! they are the same before and after a restart.

use std::path::{Path, PathBuf};

use conjure::config::ExecutorKind;
use conjure::conversation::TurnStop;
use conjure::model::Role;
use conjure::{
    Block, Clock as _, Config, Model, ProcessEnv, Request, Response, Runtime, RuntimeOptions, Session,
    SessionError, SessionSpec, Settings, StopReason, SystemClock, Usage, model_fn,
};

#[cfg(not(engines))]
pub(crate) use crate::support::turns::say;
use crate::support::turns::tool_results;
pub(crate) use crate::support::turns::{ask, follow, soon, tenant, until};

/// Returns when what was recorded before is older than now also by a clock of whole milliseconds.
pub(crate) async fn until_clock_advances() {
    let now = SystemClock.timestamp().millis();
    while SystemClock.timestamp().millis() < now + 2 {
        tokio::task::yield_now().await;
    }
}

/// Asked `$ COMMAND`, it has that run by `bash_tool`, and then says what came of it. Asked anything else, it repeats it.
pub(crate) fn model() -> impl Model {
    model_fn(|request: Request| async move { Ok(answer(&request)) })
}

pub(crate) fn answer(request: &Request) -> Response {
    let last = request.messages.last().unwrap();
    assert_eq!(last.role, Role::User);
    let (content, stop_reason) = match tool_results(last) {
        Some(results) => (Block::text(format!("it says: {results}")), StopReason::EndTurn),
        None => match last.text().strip_prefix("$ ") {
            Some(command) => {
                let input = serde_json::json!({"command": command, "description": "as it was asked"});
                let id = format!("toolu_{}", request.messages.len());
                (Block::tool_use(id, "bash_tool", &input), StopReason::ToolUse)
            }
            None => (Block::text(format!("heard: {}", last.text())), StopReason::EndTurn),
        },
    };
    Response {
        usage: Usage { input_tokens: 1, output_tokens: 1, ..Usage::default() },
        ..Response::new(vec![content], stop_reason)
    }
}

/// For containers of this image, on this machine's engine.
#[cfg(engines)]
pub(crate) fn of_containers(image: &crate::image::TestImage) -> Settings {
    Settings {
        image: Some(image.name().to_owned()),
        engine: Some(crate::engine::docker().to_string()),
        ..Settings::default()
    }
}

/// This kind of sandbox, or, where no jail can be made, the one that does without.
pub(crate) fn available_kind(kind: ExecutorKind) -> ExecutorKind {
    match kind {
        ExecutorKind::Jail if !test_support::has_user_namespaces() => ExecutorKind::Local,
        kind => kind,
    }
}

/// A host: its data directory and its skills. Its files are removed on drop.
pub(crate) struct Fixture {
    dir: PathBuf,
    pub(crate) kind: ExecutorKind,
    /// Resources that are dropped with it.
    _made: Option<tempfile::TempDir>,
    /// Further options.
    settings: Settings,
}

impl Fixture {
    pub(crate) fn new(kind: ExecutorKind) -> Self {
        Self::with(kind, Settings::default())
    }

    /// Whose sandboxes are containers of this image.
    #[cfg(engines)]
    pub(crate) fn in_containers(image: &crate::image::TestImage) -> Self {
        Self::with(ExecutorKind::Docker, of_containers(image))
    }

    pub(crate) fn with(kind: ExecutorKind, settings: Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("skills")).unwrap();
        let fixture =
            Self { kind: available_kind(kind), dir: dir.path().to_owned(), _made: Some(dir), settings };
        fixture.write_skill("greeting", "Greets people.", "echo hello");
        fixture
    }

    /// A host over an existing directory, which stays.
    pub(crate) fn existing(dir: &Path, kind: ExecutorKind) -> Self {
        Self::existing_with(dir, kind, Settings::default())
    }

    /// The same with these settings.
    pub(crate) fn existing_with(dir: &Path, kind: ExecutorKind, settings: Settings) -> Self {
        Self { dir: dir.to_owned(), kind: available_kind(kind), _made: None, settings }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub(crate) fn skill(&self, name: &str) -> PathBuf {
        self.dir.join("skills").join(name)
    }

    /// Writes a skill with a script.
    pub(crate) fn write_skill(&self, name: &str, description: &str, script: &str) {
        let dir = self.skill(name);
        std::fs::create_dir_all(dir.join("scripts")).unwrap();
        let text = format!("---\nname: {name}\ndescription: {description}\n---\nRun `scripts/run.sh`.\n");
        std::fs::write(dir.join("SKILL.md"), text).unwrap();
        std::fs::write(dir.join("scripts/run.sh"), format!("#!/bin/sh\n{script}\n")).unwrap();
    }

    pub(crate) fn config(&self) -> Config {
        let settings = Settings {
            executor: Some(self.kind),
            data: Some(self.data()),
            skill_paths: Some(vec![self.dir.join("skills")]),
            ..self.settings.clone()
        };
        Config::from_layers(settings, &ProcessEnv::from_process(), None).unwrap()
    }

    pub(crate) fn options(&self) -> RuntimeOptions {
        RuntimeOptions::from(self.config()).model("echo", model())
    }

    pub(crate) async fn start(&self) -> Runtime {
        Runtime::spawn(self.options()).await.unwrap()
    }
}

pub(crate) fn spec() -> SessionSpec {
    SessionSpec::new(tenant("acme")).base_prompt("Be brief.")
}

/// As [`ask`], where the journal has just been mended: what the session was trying again in that moment may still tell of what it found.
pub(crate) async fn ask_again(session: &Session, message: &str) -> String {
    let deadline = soon();
    let mut turn = loop {
        match session.send(message).await {
            Ok(turn) => break turn,
            Err(error) => assert!(matches!(error, SessionError::Journal { .. }), "{error:?}"),
        }
        assert!(!SystemClock.remaining(deadline).is_zero(), "it does not go on");
        tokio::task::yield_now().await;
    };
    let (stop, text) = follow(&mut turn).await;
    assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
    text
}

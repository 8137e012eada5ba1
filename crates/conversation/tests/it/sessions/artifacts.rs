//! The artifacts and the files of a session: changed by recorded events alone, and the same after a reload.

use std::sync::{Arc, Mutex};

use conjure_base::{Digest, Timestamp, TurnId};
use conjure_conversation::{
    ARTIFACT_LIMIT, Artifact, ArtifactContent, ArtifactSource, Block, CallOutcome, CommandKind, Completeness,
    ContentTypeOrigin, ConversationObserver, Event, EventKind, FILE_LIMIT, FetchedArtifact, FileChange,
    FileSource, InboxMessage, InterruptCause, Receipt, Rejection, SessionFile, SessionState, StartedCall,
    ToolResult, TurnOptions, apply,
};
use futures_util::{StreamExt, stream};

use crate::support::{
    ANSWERED, FakeModel, Fixture, accept_response, calls, id, project, reload, start, start_call, submit,
    submit_at, text,
};

#[derive(Default)]
struct SessionFixture {
    state: SessionState,
    events: Vec<Event>,
}

impl SessionFixture {
    fn submit(&mut self, kind: CommandKind) -> Result<(), Rejection> {
        self.events.extend(submit(&mut self.state, kind)?);
        Ok(())
    }

    fn register(&mut self, name: &str, source: ArtifactSource) -> Result<(), Rejection> {
        let artifact = Artifact::new(name.parse().unwrap(), source, "text/csv", None);
        self.submit(CommandKind::RegisterArtifact { artifact: Box::new(artifact) })
    }

    fn named(&self) -> Vec<(&str, &str)> {
        let artifacts = self.state.view().artifacts();
        artifacts.iter().map(|artifact| (artifact.name.as_str(), artifact.variable.as_str())).collect()
    }

    fn told(&self) -> Vec<String> {
        let session = conjure_base::SessionId::from_bits(1);
        project(session, 0, &self.events)
            .iter()
            .map(|event| serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn url(url: &str) -> ArtifactSource {
    ArtifactSource::Url { url: url.to_owned() }
}

fn fetched(name: &str, url: &str, bytes: &[u8]) -> FetchedArtifact {
    FetchedArtifact {
        name: name.parse().unwrap(),
        url: url.to_owned(),
        content_type: "application/json".to_owned(),
        content: ArtifactContent { digest: Digest::of_bytes(bytes), size: bytes.len() as u64 },
    }
}

#[test]
fn artifacts_keep_their_order_and_each_has_a_variable_of_its_own() {
    let mut fixture = SessionFixture::default();
    for name in ["sales.2024", "b", "sales 2024", "sales_2024"] {
        fixture.register(name, ArtifactSource::Content).unwrap();
    }
    let expected = [
        ("sales.2024", "ARTIFACT_SALES_2024"),
        ("b", "ARTIFACT_B"),
        ("sales 2024", "ARTIFACT_SALES_2024_2"),
        ("sales_2024", "ARTIFACT_SALES_2024_3"),
    ];
    assert_eq!(fixture.named(), expected);
    // What goes takes no other's variable with it.
    fixture.submit(CommandKind::UnregisterArtifact { name: "sales.2024".parse().unwrap() }).unwrap();
    assert_eq!(fixture.named(), expected[1..]);
    assert_eq!(reload(&fixture.events), fixture.state);
    fixture.submit(CommandKind::ClearArtifacts).unwrap();
    assert_eq!(fixture.named(), []);
    assert_eq!(reload(&fixture.events), fixture.state);
}

/// The artifacts themselves, in their order: where two lists name the same place, nothing was copied.
fn places(state: &SessionState) -> Vec<*const Artifact> {
    state.view().artifacts().iter().map(Arc::as_ptr).collect()
}

#[test]
fn a_change_of_one_artifact_copies_no_other_nor_does_a_clone_of_all() {
    let mut fixture = SessionFixture::default();
    for name in ["a", "b", "c"] {
        fixture.register(name, url("https://a.example/1")).unwrap();
    }
    let (before, view) = (places(&fixture.state), fixture.state.view().clone());
    assert!(Arc::ptr_eq(view.artifacts(), fixture.state.view().artifacts()));
    fixture.register("d", ArtifactSource::Content).unwrap();
    assert_eq!(places(&fixture.state)[..3], before);
    let fetched = Box::new(fetched("b", "https://a.example/1", b"1"));
    fixture.submit(CommandKind::FetchArtifact { fetched }).unwrap();
    let after = places(&fixture.state);
    assert_eq!((after[0], after[2]), (before[0], before[2]));
    fixture.submit(CommandKind::UnregisterArtifact { name: "a".parse().unwrap() }).unwrap();
    assert_eq!(places(&fixture.state), after[1..]);
    assert_eq!(view.artifacts()[1].size(), None, "who has an earlier moment sees that");
    assert_eq!(reload(&fixture.events), fixture.state);
}

#[test]
fn a_name_is_taken_once_and_there_are_only_so_many() {
    let mut fixture = SessionFixture::default();
    fixture.register("a", ArtifactSource::Content).unwrap();
    let taken = Rejection::ArtifactExists { name: "a".parse().unwrap() };
    assert_eq!(fixture.register("a", url("https://a.example/")), Err(taken));
    let absent = Rejection::NoArtifact { name: "b".parse().unwrap() };
    assert_eq!(fixture.submit(CommandKind::UnregisterArtifact { name: "b".parse().unwrap() }), Err(absent));
    for number in 1..ARTIFACT_LIMIT {
        fixture.register(&format!("n{number}"), ArtifactSource::Content).unwrap();
    }
    let full = Rejection::TooManyArtifacts { limit: ARTIFACT_LIMIT };
    assert_eq!(fixture.register("one more", ArtifactSource::Content), Err(full));
}

#[test]
fn what_was_fetched_belongs_to_the_url_that_the_artifact_has() {
    let mut fixture = SessionFixture::default();
    fixture.register("api", url("https://a.example/1")).unwrap();
    fixture
        .submit(CommandKind::FetchArtifact { fetched: Box::new(fetched("api", "https://a.example/1", b"1")) })
        .unwrap();
    let artifact = &fixture.state.view().artifacts()[0];
    assert_eq!((artifact.size(), artifact.content_type.as_str()), (Some(1), "application/json"));
    // Registered anew, it is another.
    fixture.submit(CommandKind::UnregisterArtifact { name: "api".parse().unwrap() }).unwrap();
    fixture.register("api", url("https://a.example/2")).unwrap();
    fixture
        .submit(CommandKind::FetchArtifact { fetched: Box::new(fetched("api", "https://a.example/1", b"1")) })
        .unwrap();
    assert_eq!(fixture.state.view().artifacts()[0].size(), None);
    assert_eq!(reload(&fixture.events), fixture.state);
}

#[test]
fn a_declared_media_type_is_not_replaced_by_what_a_server_says() {
    let mut fixture = SessionFixture::default();
    let artifact = Artifact::new("api".parse().unwrap(), url("https://a.example/1"), "text/csv", None);
    let artifact = Artifact { content_type_origin: ContentTypeOrigin::Declared, ..artifact };
    fixture.submit(CommandKind::RegisterArtifact { artifact: Box::new(artifact) }).unwrap();
    fixture
        .submit(CommandKind::FetchArtifact { fetched: Box::new(fetched("api", "https://a.example/1", b"1")) })
        .unwrap();
    let artifact = &fixture.state.view().artifacts()[0];
    assert_eq!((artifact.size(), artifact.content_type.as_str()), (Some(1), "text/csv"));
    assert_eq!(reload(&fixture.events), fixture.state);
}

#[test]
fn of_an_older_record_a_media_type_is_a_guess() {
    let recorded = r#"{"version":1,"at":5,"event":{"artifact_registered":{"artifact":{
        "name":"api","variable":"","source":{"url":{"url":"https://a.example/1"}},"content_type":"text/csv"}}}}"#;
    let event: Event = serde_json::from_str(recorded).unwrap();
    let EventKind::ArtifactRegistered { artifact } = &event.kind else { panic!("{event:?}") };
    assert_eq!(artifact.content_type_origin, ContentTypeOrigin::Guessed);
    let mut state = SessionState::default();
    apply(&mut state, &event);
    let kind = EventKind::ArtifactFetched { fetched: Box::new(fetched("api", "https://a.example/1", b"1")) };
    apply(&mut state, &Event { at: event.at, kind });
    assert_eq!(state.view().artifacts()[0].content_type, "application/json");
}

#[test]
fn what_a_call_fetched_counts_with_its_result_and_a_late_one_does_not() {
    let mut fixture = SessionFixture::default();
    fixture.register("api", url("https://a.example/1")).unwrap();
    fixture.submit(start("go")).unwrap();
    fixture.submit(start_call()).unwrap();
    fixture.submit(accept_response(&fixture.state, calls(&[("view", "a"), ("view", "b")]))).unwrap();
    let started = ["a", "b"].map(|call| StartedCall { call: id(call), idempotent: true }).to_vec();
    fixture.submit(CommandKind::StartTools { calls: started }).unwrap();
    let finish = |bytes: &[u8]| {
        let result = ToolResult::text_result(&id("a"), "so").with_fetched(vec![fetched(
            "api",
            "https://a.example/1",
            bytes,
        )]);
        CommandKind::FinishTool { result, outcome: CallOutcome::Finished }
    };
    fixture.submit(finish(b"one")).unwrap();
    assert_eq!(fixture.state.view().artifacts()[0].size(), Some(3));
    assert!(fixture.submit(finish(b"later")).is_err());
    assert_eq!(fixture.state.view().artifacts()[0].size(), Some(3));
    assert_eq!(reload(&fixture.events), fixture.state);
    let told = fixture.told();
    let fetched = told.iter().filter(|kind| *kind == "session.artifact_fetched").count();
    assert_eq!((told[0].as_str(), fetched), ("session.artifact_registered", 1));
}

fn file(id: &str, change: FileChange, turn: TurnId) -> SessionFile {
    SessionFile {
        source: FileSource::Workspace,
        id: id.to_owned(),
        name: id.to_owned(),
        size: Some(1),
        content_type: "text/plain".to_owned(),
        digest: None,
        change,
        turn,
    }
}

fn produce(turn: TurnId, files: Vec<SessionFile>) -> CommandKind {
    CommandKind::ProduceFiles { turn, files, completeness: Completeness::Complete }
}

#[test]
fn of_too_many_files_those_of_the_oldest_turns_and_the_deepest_are_forgotten() {
    let mut fixture = SessionFixture::default();
    let turn = |fixture: &mut SessionFixture, turn, files| {
        fixture.submit(start("go")).unwrap();
        fixture.submit(CommandKind::Interrupt { cause: InterruptCause::Cancelled }).unwrap();
        fixture.submit(produce(turn, files)).unwrap();
    };
    let (first, second) = (TurnId::FIRST, TurnId::FIRST.next());
    let made = |turn| move |number| file(&format!("a/{turn:?}-{number:05}"), FileChange::Created, turn);
    let mut files: Vec<_> = (0..FILE_LIMIT - 1).map(made(first)).collect();
    files.push(file("old", FileChange::Created, first));
    turn(&mut fixture, first, files);
    assert_eq!(fixture.state.files().len(), FILE_LIMIT);
    // The newest are known, and of the turn before what lies highest is.
    turn(&mut fixture, second, vec![file("z/new", FileChange::Created, second), made(first)(0)]);
    let has = |fixture: &SessionFixture, id: &str| fixture.state.files().any(|file| file.id == id);
    assert_eq!(fixture.state.files().len(), FILE_LIMIT);
    assert!(has(&fixture, "z/new") && has(&fixture, "old") && has(&fixture, &made(first)(0).id));
    assert!(!has(&fixture, &made(first)(FILE_LIMIT - 2).id), "the last of the deepest");
    // One turn alone makes too many.
    let third = second.next();
    let mut files: Vec<_> = (0..FILE_LIMIT).map(made(third)).collect();
    files.push(file("report.csv", FileChange::Created, third));
    turn(&mut fixture, third, files);
    assert_eq!(fixture.state.files().len(), FILE_LIMIT);
    assert!(has(&fixture, "report.csv") && !has(&fixture, "old") && !has(&fixture, "z/new"));
    assert_eq!(reload(&fixture.events), fixture.state);
}

#[test]
fn the_event_of_files_has_their_completeness() {
    let told = |files: Vec<SessionFile>, completeness| {
        let kind = EventKind::FilesProduced { turn: TurnId::FIRST, files, completeness };
        let event = Event { at: Timestamp::default(), kind };
        let events = project(conjure_base::SessionId::from_bits(1), 0, &[event]);
        events
            .iter()
            .map(|event| serde_json::to_value(event).unwrap()["completeness"].clone())
            .collect::<Vec<_>>()
    };
    let one = vec![file("a", FileChange::Created, TurnId::FIRST)];
    assert_eq!(told(one.clone(), Completeness::Complete), ["whole"]);
    assert_eq!(told(one, Completeness::Truncated), ["cut"]);
    assert_eq!(told(Vec::new(), Completeness::Truncated), ["cut"]);
    assert!(told(Vec::new(), Completeness::Complete).is_empty());
}

#[test]
fn the_files_of_a_turn_are_recorded_once_behind_its_end() {
    let mut fixture = SessionFixture::default();
    assert_eq!(fixture.state.files_due(), None);
    fixture.submit(start("go")).unwrap();
    let first = TurnId::FIRST;
    assert_eq!(fixture.state.files_due().map(|(turn, _)| turn), Some(first));
    let not_due = Err(Rejection::FilesNotDue { turn: first });
    assert_eq!(fixture.submit(produce(first, Vec::new())), not_due, "while it runs");
    fixture.submit(CommandKind::Interrupt { cause: InterruptCause::Cancelled }).unwrap();
    fixture.submit(produce(first, vec![file("b", FileChange::Created, first)])).unwrap();
    assert_eq!(fixture.submit(produce(first, Vec::new())), not_due, "twice");
    assert_eq!(fixture.state.files_due(), None);

    fixture.submit(start("on")).unwrap();
    fixture.submit(CommandKind::Interrupt { cause: InterruptCause::Cancelled }).unwrap();
    let second = first.next();
    let files = vec![file("b", FileChange::Changed, second), file("a", FileChange::Created, second)];
    fixture.submit(produce(second, files)).unwrap();
    let known: Vec<_> = fixture.state.files().map(|file| (file.id.as_str(), file.turn)).collect();
    assert_eq!(known, [("a", second), ("b", second)]);
    assert_eq!(reload(&fixture.events), fixture.state);
    assert_eq!(fixture.told().last().unwrap(), "session.files_produced");
}

#[tokio::test(start_paused = true)]
async fn artifacts_change_during_a_turn_and_observers_see_the_state_first() {
    #[derive(Default)]
    struct Seen(Mutex<Vec<String>>);
    impl ConversationObserver for Seen {
        fn on_assets_changed(&self, state: &SessionState) {
            let names = state.view().artifacts().iter().map(|artifact| artifact.name.to_string());
            self.0.lock().unwrap().push(format!("has {}", names.collect::<Vec<_>>().join(",")));
        }
        fn on_recorded(&self, _: u64, event: &Event) {
            if let EventKind::ArtifactRegistered { .. } | EventKind::ArtifactUnregistered { .. } = event.kind
            {
                self.0.lock().unwrap().push("recorded".to_owned());
            }
        }
    }
    let driver_fixture = Fixture::new(FakeModel::in_turn(vec![calls(&[("bash", "1")]), text("done")]));
    let seen = Arc::new(Seen::default());
    let mut conversation = driver_fixture.load_with(seen.clone()).await;
    conversation.submit(start("go")).await.unwrap();
    let told: Arc<Mutex<Vec<Receipt>>> = Arc::default();
    let message = |command| {
        let told = Arc::clone(&told);
        InboxMessage::command(command, move |receipt| told.lock().unwrap().push(receipt))
    };
    let artifact = |name: &str| {
        Box::new(Artifact::new(name.parse().unwrap(), ArtifactSource::Content, "text/csv", None))
    };
    let inbox = stream::iter([
        message(CommandKind::RegisterArtifact { artifact: artifact("a") }),
        message(CommandKind::RegisterArtifact { artifact: artifact("a") }),
        message(CommandKind::RegisterArtifact { artifact: artifact("b") }),
        message(CommandKind::UnregisterArtifact { name: "a".parse().unwrap() }),
    ]);
    let options = TurnOptions { inbox: inbox.boxed(), ..TurnOptions::default() };
    assert_eq!(driver_fixture.drive(&mut conversation, options).await, Ok(ANSWERED));
    let exists = Receipt::Refused(Rejection::ArtifactExists { name: "a".parse().unwrap() });
    let expected = [Receipt::Recorded, exists, Receipt::Recorded, Receipt::Recorded];
    assert_eq!(*told.lock().unwrap(), expected);
    let expected = ["has a", "recorded", "has a,b", "recorded", "has b", "recorded"];
    assert_eq!(*seen.0.lock().unwrap(), expected);
    // When no turn runs, too.
    message(CommandKind::ClearArtifacts).submit(&mut conversation).await.unwrap();
    assert!(conversation.state().view().artifacts().is_empty());
    // What nobody took goes back without anything.
    drop(message(CommandKind::ClearArtifacts));
    assert_eq!(told.lock().unwrap().last(), Some(&Receipt::Returned(Vec::new())));
}

#[test]
fn a_turn_has_acted_once_it_ran_a_tool_here_or_with_the_service() {
    let mut fixture = SessionFixture::default();
    let answer = |fixture: &mut SessionFixture, response| {
        fixture.submit(start_call()).unwrap();
        fixture.submit(accept_response(&fixture.state, response)).unwrap();
    };
    fixture.submit(start("chat")).unwrap();
    answer(&mut fixture, text("hello"));
    assert!(!fixture.state.has_run_tools());
    fixture.submit(start("go")).unwrap();
    answer(&mut fixture, calls(&[("view", "a")]));
    assert!(!fixture.state.has_run_tools(), "it may be denied");
    assert!(!fixture.state.has_started_tools());
    fixture
        .submit(CommandKind::StartTools { calls: vec![StartedCall { call: id("a"), idempotent: true }] })
        .unwrap();
    assert!(fixture.state.has_run_tools());
    fixture.submit(CommandKind::Interrupt { cause: InterruptCause::Cancelled }).unwrap();
    assert!(fixture.state.has_run_tools(), "its files are still of interest");
    fixture.submit(start("chat")).unwrap();
    assert!(!fixture.state.has_run_tools());
    assert!(fixture.state.has_started_tools(), "an earlier turn has");
    let hosted = r#"{"type":"server_tool_use","id":"s1","name":"code_execution","input":{}}"#;
    let mut response = text("done");
    response.content.insert(0, Block::from_json(hosted).unwrap());
    answer(&mut fixture, response);
    assert!(fixture.state.has_run_tools());
}

#[test]
fn a_session_knows_when_something_was_recorded_last() {
    let mut state = SessionState::default();
    assert_eq!(state.last_event_at(), Timestamp::default());
    for millis in [5, 9] {
        let queue = CommandKind::Queue { input: vec![Block::text("so")], limits: None };
        submit_at(&mut state, millis, queue).unwrap();
        assert_eq!(state.last_event_at(), Timestamp::from_millis(millis));
    }
}

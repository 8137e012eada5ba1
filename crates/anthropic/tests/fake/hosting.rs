//! Conversations in the fake's containers: skills, pauses, produced files, and containers that expire.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conjure_anthropic::fake::{FakeMessages, FakeToolRun, Reply};
use conjure_anthropic::hosted::{
    FileId, HostedSkill, ResumeError, ResumeOptions, Upload, beta_headers, code_execution_tool,
    container_config, container_upload, extract_file_ids, produced_files, run_until_complete,
};
use conjure_anthropic::{ApiProfile, Messages, ModelOptions};
use conjure_base::{Clock, ContainerId, Deadline, SystemClock, Timestamp};
use conjure_conversation::{Block, Message, ModelErrorKind, Request, StopReason};
use serde_json::{Value, json};

use crate::hosted::{PROFILES, client, skill};
use crate::support::{KEY, ask, file, send, start};

fn request(content: Vec<Block>, container: Option<ContainerId>) -> Request {
    Request {
        container,
        hosted: [HostedSkill::anthropic("xlsx")].into(),
        ..Request::new(vec![Arc::new(Message::user(content))])
    }
}

fn model(fake: &FakeMessages, profile: ApiProfile) -> Messages {
    client(fake, profile).messages(ModelOptions::new("m")).unwrap()
}

fn produced_file(name: &str, content: &'static str) -> Reply {
    FakeToolRun::new("python make.py").with_file(name, content).saying("Done.").into()
}

#[tokio::test]
async fn a_file_is_uploaded_processed_and_downloaded() {
    let dir = tempfile::tempdir().unwrap();
    for profile in PROFILES {
        let path = skill(&dir, "Does it.");
        let turns = [FakeToolRun::new("sleep 60").paused().into(), produced_file("report.xlsx", "sheets")];
        let fake = start(FakeMessages::builder().profile(profile).hosting().turns(turns)).await;
        let client = client(&fake, profile);
        let own_skill = client.skills().upload(&path, Upload::new()).await.unwrap();
        let data = client.files().upload("data.csv", file("1,2\n"), "text/csv").await.unwrap();
        let skills = [HostedSkill::anthropic("xlsx"), HostedSkill::custom(own_skill.id.clone())];
        let model = model(&fake, profile);
        let upload = Block::from_json(container_upload(&data.id).to_string()).unwrap();
        let mut request = request(vec![Block::text("Make a table."), upload], None);
        request.hosted = skills.into();
        let first = ask(&model, request.clone()).await.unwrap();
        assert_eq!(first.stop_reason, StopReason::PauseTurn);

        request.container = first.container.clone();
        assert_eq!(request.container, Some(fake.containers().remove(0)));
        request.messages.push(Arc::new(Message::assistant(first.content)));
        let answer = ask(&model, request).await.unwrap();
        assert_eq!(answer.container, first.container);
        let files = produced_files(&answer.content);
        assert_eq!(files.len(), 1);
        let download = client.files().download(&files[0]).await.unwrap();
        assert_eq!(download.name(), Some("report.xlsx"));
        assert_eq!(download.bytes().await.unwrap(), b"sheets");
        assert_eq!(fake.containers().len(), 1);
    }
}

#[tokio::test]
async fn an_expired_container_is_replaced_by_a_new_one() {
    let turns = [produced_file("a.txt", "1"), produced_file("b.txt", "2")];
    let fake = start(FakeMessages::builder().hosting_for(Duration::from_secs(3600)).turns(turns)).await;
    let model = model(&fake, ApiProfile::Beta);
    let ask = async |text: &str, container| ask(&model, request(vec![Block::text(text)], container)).await;
    let first = ask("a", None).await.unwrap().container;
    assert!(first.is_some());
    assert_eq!(ask("b", first.clone()).await.unwrap().container, first);
    fake.expire_containers();
    for not_found in [first.clone(), Some(ContainerId::new("container_of_others"))] {
        let failure = ask("c", not_found).await.unwrap_err();
        assert_eq!(failure.kind, ModelErrorKind::ContainerGone, "{failure}");
        assert!(failure.request_id.is_some());
    }
    let fresh = ask("c", None).await.unwrap().container;
    assert!(fresh.is_some() && fresh != first);
}

/// The machine's clock, this many milliseconds ahead.
#[derive(Debug, Default)]
struct OffsetClock(AtomicU64);

impl Clock for OffsetClock {
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_millis(SystemClock.timestamp().millis() + self.0.load(Ordering::SeqCst))
    }

    fn deadline(&self, after: Duration) -> Deadline {
        SystemClock.deadline(after)
    }

    fn remaining(&self, deadline: Deadline) -> Duration {
        SystemClock.remaining(deadline)
    }

    fn sleep_until(&self, deadline: Deadline) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        SystemClock.sleep_until(deadline)
    }
}

#[tokio::test]
async fn a_container_expires_after_its_last_use() {
    let clock = Arc::new(OffsetClock::default());
    let turns = [produced_file("a.txt", "1"), produced_file("b.txt", "2")];
    let hour = Duration::from_secs(3600);
    let fake = FakeMessages::builder().hosting_for(hour).clock(clock.clone()).turns(turns);
    let fake = start(fake).await;
    let model = model(&fake, ApiProfile::Current);
    let ask = async |text: &str, container| ask(&model, request(vec![Block::text(text)], container)).await;
    let container = ask("a", None).await.unwrap().container;
    for _ in 0..3 {
        clock.0.fetch_add(50 * 60 * 1000, Ordering::SeqCst);
        assert_eq!(ask("b", container.clone()).await.unwrap().container, container);
    }
    clock.0.fetch_add(61 * 60 * 1000, Ordering::SeqCst);
    let failure = ask("b", container).await.unwrap_err();
    assert_eq!(failure.kind, ModelErrorKind::ContainerGone, "{failure}");
}

#[tokio::test]
async fn requests_for_unknown_objects_are_rejected() {
    let fake = start(FakeMessages::builder().hosting().turns([produced_file("a.txt", "1")])).await;
    let refused = async |skills: &[HostedSkill], content: Vec<Block>| {
        let model = model(&fake, ApiProfile::Beta);
        let request = Request { hosted: skills.into(), ..request(content, None) };
        let failure = ask(&model, request).await.unwrap_err();
        assert_ne!(failure.kind, ModelErrorKind::ContainerGone, "{failure}");
        failure.message
    };
    let text = || vec![Block::text("Hi")];
    let unknown = [HostedSkill::custom("skill_x")];
    assert!(refused(&unknown, text()).await.contains("skill `skill_x`"));
    let old = [HostedSkill::anthropic("xlsx").with_version("1")];
    assert!(refused(&old, text()).await.contains("of version `1` not found"));
    let upload = Block::from_json(container_upload(&FileId::new("file_x")).to_string()).unwrap();
    assert!(
        refused(&[HostedSkill::anthropic("xlsx")], vec![upload]).await.contains("File not found: file_x")
    );
    // Without the tool, and without the betas.
    let plain = || Request { hosted: Arc::default(), ..request(text(), None) };
    let options = ModelOptions::new("m").with_field("container", container_config(&old).unwrap()).unwrap();
    let model = client(&fake, ApiProfile::Beta).messages(options).unwrap();
    let failure = ask(&model, plain()).await.unwrap_err();
    assert!(failure.message.contains("tool is required"), "{failure}");
    let options = ModelOptions::new("m").with_server_tool(code_execution_tool());
    let model = client(&fake, ApiProfile::Beta).messages(options).unwrap();
    let failure = ask(&model, plain()).await.unwrap_err();
    assert!(failure.message.contains("code-execution-2025-08-25"), "{failure}");
}

#[tokio::test]
async fn container_errors_are_results_without_files() {
    let turns =
        [Reply::from(FakeToolRun::new("x").failing("execution_time_exceeded").with_file("a", "lost"))];
    let fake = start(FakeMessages::builder().hosting().turns(turns)).await;
    let model = model(&fake, ApiProfile::Beta);
    let answer = ask(&model, request(vec![Block::text("Hi")], None)).await.unwrap();
    assert!(produced_files(&answer.content).is_empty());
    assert!(answer.content[1].json().contains("execution_time_exceeded"));
}

/// A client of the host's own: headers by hand, JSON in and out.
async fn post(fake: &FakeMessages, messages: Vec<Value>, container: Value) -> Result<Value, String> {
    let key = format!("x-api-key: {KEY}");
    let betas: Vec<String> = beta_headers().iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let mut headers = vec![key.as_str(), "anthropic-version: 2023-06-01", "content-type: application/json"];
    headers.extend(betas.iter().map(String::as_str));
    let body = json!({"model": "m", "max_tokens": 100, "messages": messages, "container": container,
        "tools": [code_execution_tool()]});
    let answered = send(fake, "POST /v1/messages", &headers, body.to_string().as_bytes()).await;
    if answered.status == 200 { Ok(answered.json()) } else { Err(answered.message()) }
}

#[tokio::test]
async fn the_helpers_resume_pauses_with_any_client() {
    let pause = |name: &str| Reply::from(FakeToolRun::new("sleep 60").with_file(name, "…").paused());
    let turns = [pause("a.txt"), pause("b.txt"), produced_file("c.txt", "…"), pause("d.txt")];
    let fake = start(FakeMessages::builder().hosting().turns(turns)).await;
    let container = container_config(&[HostedSkill::anthropic("xlsx")]).unwrap();
    let question = vec![json!({"role": "user", "content": "Go."})];
    let mut results = Vec::new();
    let options = ResumeOptions::new().on_pause(|response, attempt| {
        let container = &response["container"];
        let version = container["skills"][0]["version"].as_str();
        assert!(version.is_some_and(|version| version != "latest"), "{version:?} is not resolved");
        assert!(container["expires_at"].as_str().unwrap().ends_with('Z'));
        results.push((
            container["id"].as_str().map(str::to_owned),
            attempt,
            extract_file_ids(response).len(),
        ));
    });
    let done =
        run_until_complete(question.clone(), container.clone(), options, async |messages, container| {
            post(&fake, messages, container).await
        });
    let done = done.await.unwrap();
    let id = done.container.clone().unwrap();
    assert_eq!(fake.containers(), std::slice::from_ref(&id));
    assert_eq!(results, [(Some(id.to_string()), 1, 1), (Some(id.to_string()), 2, 1)]);
    assert_eq!((done.attempts, done.files.len(), done.messages.len()), (3, 3, 2));
    assert!(done.files.iter().all(|file| fake.file(file).is_some()));
    // The history that it leaves is one that the service takes.
    let mut next = done.messages;
    next.push(json!({"role": "user", "content": "And again."}));
    let container = conjure_anthropic::hosted::with_container_id(container, &id);
    let once = ResumeOptions::new().with_maximum(1);
    let paused = run_until_complete(next, container, once, async |messages, container| {
        post(&fake, messages, container).await
    });
    let Err(ResumeError::MaximumExceeded { attempts: 1, paused, .. }) = paused.await else { panic!() };
    assert_eq!(paused.container["id"], id.as_str());
}

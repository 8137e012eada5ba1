//! A conversation whose sandbox is paused while nobody speaks: a scripted model, the real tools and real sandboxes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::executors::ConnectorSource;
use conjure_actors::runtime::{NewSession, SessionRuntime, TreeOptions};
use conjure_actors::session::{SessionComponents, SessionFactory, SessionSetup};
use conjure_actors::supervision::Failure;
use conjure_base::{Redactor, TenantId};
use conjure_conversation::PromptPrefix;
use conjure_conversation::scripted::{Script, ScriptFormat, ScriptedModel};
use conjure_journal::LeaseOwner;
use conjure_sandbox::{ExecutionContext, Executor, Jail};
use conjure_toolbox::{AllowAll, Toolbox};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use test_support::until;

use crate::scenario::{answered, follow, options};
use crate::support::{memory, soon};

/// A background process counts, with the directory's name in its arguments. In the second call the model waits for it.
const SCRIPT: &str = r#"
version: 1
turns:
  - content:
      - {tool_use: {name: bash_tool, input: {command: "setsid bash -c 'i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.001; done' DIRECTORY > /dev/null 2>&1 & while [ ! -e count ]; do sleep 0.001; done; echo begun", description: count}}}
  - content: "It counts."
  - content:
      - {tool_use: {name: bash_tool, input: {command: "read before < count; while read now < count; [ \"$now\" -le \"$before\" ]; do sleep 0.001; done; echo it goes on", description: look}}}
  - content: "It counts on."
  - content:
      - {tool_use: {name: bash_tool, input: {command: "test -e count && echo the file is there", description: look}}}
  - content: "There is the file."
"#;

struct Fixture {
    model: ScriptedModel,
    source: Arc<ConnectorSource>,
}

impl SessionFactory for Fixture {
    fn build<'a>(&'a self, setup: SessionSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>> {
        async move {
            let executor = setup.executors.clone().supervise(Arc::clone(&self.source) as _)?;
            let executor: Arc<dyn Executor> = Arc::new(executor);
            let toolbox =
                Toolbox::builder().with_executor(Arc::clone(&executor)).with_approver(AllowAll).build()?;
            Ok(SessionComponents {
                model: Arc::new(self.model.clone()),
                summarizer: None,
                composer: Arc::new(PromptPrefix { tools: toolbox.definitions(), ..PromptPrefix::default() }),
                tools: Arc::new(toolbox),
                redactor: Redactor::default(),
                executor: Some(executor),
                outputs: Vec::new(),
                artifacts: None,
                uploads: None,
                pre_call_hook: None,
            })
        }
        .boxed()
    }
}

/// The states of the processes that have this in their arguments.
fn states(mark: &str) -> String {
    let state = |dir: &Path| {
        let arguments = std::fs::read(dir.join("cmdline")).ok()?;
        let stat = std::fs::read_to_string(dir.join("stat")).ok()?;
        String::from_utf8_lossy(&arguments).contains(mark).then_some(())?;
        stat.rsplit_once(") ")?.1.chars().next()
    };
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| state(&entry.ok()?.path())).collect()
}

#[tokio::test]
async fn background_processes_are_paused_until_the_next_turn_and_end_with_the_session() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().to_str().unwrap().to_owned();
    let script =
        Script::from_text(&SCRIPT.replace("DIRECTORY", &mark), ScriptFormat::Yaml, "this test").unwrap();
    let jail = Jail::new([("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())]);
    let source = ConnectorSource::new(Arc::new(jail), ExecutionContext::new(dir.path())).unwrap();
    let fixture = Fixture { model: ScriptedModel::new(script), source: Arc::new(source) };
    let mut runtime_options =
        TreeOptions::new(memory(), Arc::new(fixture), LeaseOwner::new("first").unwrap());
    runtime_options.sessions = options("first");
    runtime_options.sessions.executors.pause_after = Some(Duration::from_millis(20));
    let runtime = SessionRuntime::spawn(runtime_options).await.unwrap();
    let session = runtime.open(NewSession::new(TenantId::new("acme").unwrap())).await.unwrap();
    let session = session.with_deadline(soon());
    let paused = async || {
        until("it is paused", || {
            !states(&mark).is_empty() && states(&mark).chars().all(|state| state == 'T')
        })
        .await;
        until("the tree says so", || runtime.tree().to_string().contains("its sandbox is paused")).await;
    };

    let (lines, stop) = follow(&mut session.send("Count.").await.unwrap()).await;
    assert_eq!(stop, answered(), "{lines:#?}");
    paused().await;
    // A list of files does not need running processes, but a reader may wait for their output.
    let names: Vec<_> =
        session.list_files().await.unwrap().entries.into_iter().map(|entry| entry.path).collect();
    assert!(names.iter().any(|name| name.ends_with("count")), "{names:?}");
    paused().await;
    let (lines, stop) = follow(&mut session.send("Does it?").await.unwrap()).await;
    assert_eq!(stop, answered(), "{lines:#?}");
    let log = lines.join("\n");
    assert!(log.contains("it goes on") && !log.contains("new sandbox"), "{log}");

    // The session's actor is killed while the sandbox is paused: the sandbox ends, and the next incarnation reports that.
    paused().await;
    session.kill();
    let (lines, stop) = follow(&mut session.send("And the file?").await.unwrap()).await;
    assert_eq!(stop, answered(), "{lines:#?}");
    let log = lines.join("\n");
    assert!(log.contains("the file is there") && log.contains("new sandbox"), "{log}");
    assert_eq!(states(&mark), "", "nothing is left of the first sandbox");
    session.close().await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
}

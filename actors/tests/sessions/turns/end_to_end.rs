//! A scripted model, the real tools and a real sandbox, over both journals.

use std::sync::Arc;

use conjure_actors::journal::OpenJournal;
use conjure_actors::runtime::{NewSession, SessionRuntime, TreeOptions};
use conjure_actors::session::{SessionComponents, SessionFactory, SessionSetup};
use conjure_actors::supervision::Failure;
use conjure_base::{Redactor, SystemClock, TenantId};
use conjure_conversation::PromptPrefix;
use conjure_conversation::scripted::{Script, ScriptFormat, ScriptedModel};
use conjure_journal::LeaseOwner;
use conjure_sandbox::{ExecutionContext, Executor, Local, Sandbox};
use conjure_toolbox::{AllowAll, Toolbox};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::scenario::{answered, follow};
use crate::support::{TempDisk, memory, soon};

const SCRIPT: &str = r#"
version: 1
turns:
  - content:
      - {tool_use: {name: create_file, input: {path: note.txt, file_text: "six times seven\n", description: a note}}}
      - {tool_use: {name: bash_tool, input: {command: "cat note.txt; echo $((6 * 7)); echo done >> effects", description: multiply}}}
  - content: "It is 42."
  - content:
      - {tool_use: {name: bash_tool, input: {command: "echo done >> effects; touch running; sleep 600", description: wait}}}
  - content: "I do not know what became of it."
"#;

/// A model, a sandbox and tools that outlive the incarnations of the session.
struct Fixture {
    model: ScriptedModel,
    sandbox: Arc<Sandbox>,
}

impl SessionFactory for Fixture {
    fn build<'a>(&'a self, _: SessionSetup<'a>) -> BoxFuture<'a, Result<SessionComponents, Failure>> {
        async move {
            let executor: Arc<dyn Executor> = Arc::clone(&self.sandbox) as _;
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

async fn check(open: Arc<OpenJournal>) {
    let dir = tempfile::tempdir().unwrap();
    let context = ExecutionContext::new(dir.path().to_owned());
    let local = Local::without_isolation([("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())]);
    let sandbox = Arc::new(Sandbox::open(&local, &context, Arc::new(SystemClock), soon()).await.unwrap());
    let script = Script::from_text(SCRIPT, ScriptFormat::Yaml, "this test").unwrap();
    let fixture = Fixture { model: ScriptedModel::new(script), sandbox: Arc::clone(&sandbox) };
    let owner = LeaseOwner::new("first").unwrap();
    let runtime = SessionRuntime::spawn(TreeOptions::new(open, Arc::new(fixture), owner)).await.unwrap();
    let tenant = TenantId::new("acme").unwrap();
    let session = runtime.open(NewSession::new(tenant)).await.unwrap().with_deadline(soon());

    let (lines, stop) = follow(&mut session.send("What is six times seven?").await.unwrap()).await;
    assert_eq!(stop, answered(), "{lines:#?}");
    let log = lines.join("\n");
    assert!(log.contains("six times seven\\n42") && log.contains("It is 42."), "{log}");
    let listing = session.list_files().await.unwrap();
    let names: Vec<String> = listing.entries.iter().map(|entry| entry.path.clone()).collect();
    assert!(names.iter().any(|name| name.ends_with("note.txt")), "{names:?}");
    assert_eq!(session.executor().await.unwrap().layout(), sandbox.layout());

    // The session is killed while a command runs: the command is ended, not run again, and the model is told.
    let mut turn = session.send("And now wait.").await.unwrap();
    for _ in 0..12_000 {
        if dir.path().join("running").exists() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    session.kill();
    let (lines, stop) = follow(&mut turn).await;
    assert_eq!(stop, answered(), "{lines:#?}");
    assert!(lines.join("\n").contains("outcome unknown"), "{lines:#?}");
    let effects = std::fs::read_to_string(dir.path().join("effects")).unwrap();
    assert_eq!(effects, "done\ndone\n");
    runtime.shutdown(soon()).await.unwrap();
    sandbox.cleanup().await;
}

#[tokio::test]
async fn a_scripted_session_with_real_tools_in_memory() {
    check(memory()).await;
}

#[tokio::test]
async fn a_scripted_session_with_real_tools_on_disk() {
    check(TempDisk::new().sqlite()).await;
}

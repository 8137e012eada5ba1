//! A sandbox over a data directory of its own, and what tests do with it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use conjure_sandbox::{
    Command, CommandEnd, ContentDir, ContentItem, DataDir, ExecutionContext, Executor, Jail, Sandbox,
    SandboxError,
};
use conjure_store::{FileMode, TreeOptions};
use tempfile::TempDir;

use crate::support::{PatientClock, host, options, soon, text};

pub(crate) const MIB: u64 = 1 << 20;

/// A data directory, a workspace in it, and a sandbox over both.
pub(crate) struct Fixture {
    // The first that goes.
    pub(crate) sandbox: Sandbox,
    pub(crate) workspace: conjure_sandbox::OwnedWorkspace,
    pub(crate) data: DataDir,
    pub(crate) _dir: TempDir,
}

pub(crate) async fn fixture() -> Fixture {
    fixture_with(|_| {}).await
}

pub(crate) async fn fixture_with(change: impl FnOnce(&mut ExecutionContext)) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::open(&dir.path().join("data")).unwrap();
    let workspace = data.workspace().unwrap();
    let mut context = ExecutionContext::new(workspace.path());
    change(&mut context);
    let sandbox = open(&data, &context).await.unwrap();
    Fixture { sandbox, workspace, data, _dir: dir }
}

pub(crate) fn jail(data: &DataDir) -> Jail {
    test_support::need_user_namespaces();
    Jail::new(host()).with_data(data.clone())
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) async fn open(data: &DataDir, context: &ExecutionContext) -> Result<Sandbox, SandboxError> {
    Sandbox::open(&jail(data), context, Arc::new(PatientClock), soon(120)).await
}

impl Fixture {
    pub(crate) async fn run(&self, script: &str) -> conjure_sandbox::CommandOutcome {
        self.sandbox.run(Command::bash(script), options()).await.unwrap()
    }

    /// The output of a script, which must succeed.
    #[track_caller]
    pub(crate) fn bash(&self, script: &str) -> impl Future<Output = String> {
        let caller = std::panic::Location::caller();
        async move {
            let outcome = self.run(script).await;
            let output = text(&outcome);
            assert_eq!(outcome.end, CommandEnd::Exited(0), "{caller}: {output}");
            output
        }
    }

    pub(crate) fn tree(&self, name: &str, files: &[(&str, &str)]) -> ContentItem {
        let source = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = source.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let store = self.data.store();
        let tree = store.insert_tree(source.path(), &TreeOptions::default()).unwrap();
        ContentItem::tree(ContentDir::Skills, name, store, tree)
    }

    pub(crate) fn file(&self, name: &str, content: &[u8]) -> ContentItem {
        let store = self.data.store();
        let digest = store.insert_bytes(content, FileMode::Plain).unwrap().digest;
        ContentItem::file(ContentDir::Artifacts, name, store, digest, FileMode::Plain)
    }

    pub(crate) async fn install_content(&self, item: ContentItem) -> Result<String, SandboxError> {
        let path = self.sandbox.install_content(item, options()).await?;
        Ok(path.to_str().unwrap().to_owned())
    }
}

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

//! What every kind of sandbox must show that can be made before its session is there.

use std::fs;
use std::future::poll_fn;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use conjure_sandbox::{
    Command, CommandEnd, Connector, ContentDir, ContentItem, DataDir, ExecutionContext, Executor, Sandbox,
    SandboxError, SandboxErrorKind, SharedDir, WarmSandbox, WarmSpec,
};
use conjure_store::FileMode;
use tempfile::TempDir;

use super::{PatientClock, bash_in, options, soon};

/// Makes a connector whose directories lie there.
type Make = dyn Fn(&DataDir) -> Box<dyn Connector>;

/// The data directory of warm sandboxes, and those of tenants, on one file system; and a kind of sandbox.
pub(crate) struct WarmSandboxFixture {
    make: Box<Make>,
    pub(crate) pool: DataDir,
    dir: TempDir,
}

/// A tenant's session, before it has a sandbox.
pub(crate) struct Tenant {
    pub(crate) data: DataDir,
    pub(crate) context: ExecutionContext,
}

impl WarmSandboxFixture {
    /// With sandboxes of connectors that have their directories there.
    pub(crate) fn of<C: Connector + 'static>(make: impl Fn(DataDir) -> C + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pool = DataDir::open(&dir.path().join("pool")).unwrap();
        Self { make: Box::new(move |data| Box::new(make(data.clone()))), pool, dir }
    }

    /// A tenant with a skill of its own, and a secret.
    pub(crate) fn tenant(&self, name: &str) -> Tenant {
        let data = DataDir::open(&self.dir.path().join(name)).unwrap();
        let skill = self.dir.path().join(format!("skill-of-{name}"));
        fs::create_dir_all(&skill).unwrap();
        fs::write(skill.join("SKILL.md"), format!("canary of {name}")).unwrap();
        let workspace = data.named_workspace("ses_1").unwrap();
        let mut context = ExecutionContext::new(workspace);
        context.read_only = vec![SharedDir::new(skill, format!("/mnt/skills/{name}"))];
        context.environment = [("CANARY".to_owned(), format!("canary of {name}"))].into();
        Tenant { data, context }
    }

    pub(crate) async fn warm_sandbox(&self) -> WarmSandbox {
        self.warm_sandbox_for(&ExecutionContext::new("/")).await.unwrap()
    }

    pub(crate) async fn warm_sandbox_for(
        &self,
        context: &ExecutionContext,
    ) -> Result<WarmSandbox, SandboxError> {
        let connector = (self.make)(&self.pool);
        WarmSandbox::open(
            &*connector,
            &self.pool,
            WarmSpec::from_context(context),
            Arc::new(PatientClock),
            soon(120),
        )
        .await
    }

    /// A sandbox that is made for this session.
    pub(crate) async fn fresh_sandbox(&self, tenant: &Tenant) -> Sandbox {
        tenant.data.finish_workspace_swap(tenant.workspace()).unwrap();
        let connector = (self.make)(&tenant.data);
        Sandbox::open(&*connector, &tenant.context, Arc::new(PatientClock), soon(120)).await.unwrap()
    }

    /// The files of warm sandboxes on the disk.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let dirs = ["sandboxes", "workspaces"].map(|name| self.pool.path().join(name));
        let names = dirs.iter().flat_map(|dir| fs::read_dir(dir).unwrap());
        names.map(|entry| entry.unwrap().path().display().to_string()).collect()
    }
}

impl Tenant {
    pub(crate) fn workspace(&self) -> &Path {
        &self.context.workspace
    }

    pub(crate) async fn claim(&self, warm_sandbox: WarmSandbox) -> Result<Sandbox, SandboxError> {
        warm_sandbox.claim(&self.context, &self.data, soon(120)).await
    }
}

/// A session has in a warm sandbox what it has in a sandbox that was made for it.
pub(crate) async fn a_claimed_warm_sandbox_belongs_to_the_session(fixture: WarmSandboxFixture) {
    let tenant = fixture.tenant("acme");
    let warm_sandbox = fixture.warm_sandbox().await;
    assert_eq!(warm_sandbox.failure(), None);
    let sandbox = tenant.claim(warm_sandbox).await.unwrap();
    assert_eq!(sandbox.layout(), &(fixture.make)(&tenant.data).layout(&tenant.context).unwrap());
    let output = bash_in(&sandbox, "echo $CANARY; cat /mnt/skills/acme/SKILL.md; pwd; ls -A").await;
    let cold = fixture.tenant("cold");
    let fresh_sandbox = fixture.fresh_sandbox(&cold).await;
    let said_cold = bash_in(&fresh_sandbox, "echo $CANARY; cat /mnt/skills/cold/SKILL.md; pwd; ls -A").await;
    assert_eq!(output.replace("acme", "cold"), said_cold);
    // The same variables, but for the secret's.
    let variables = "env | grep -v -e ^CANARY= -e ^_= | sort";
    assert_eq!(bash_in(&sandbox, variables).await, bash_in(&fresh_sandbox, variables).await);
    fresh_sandbox.cleanup().await;
    // The command's own variable takes precedence. The content directories are read-only.
    let mut command = Command::bash("echo $CANARY; echo x > /mnt/skills/acme/SKILL.md || echo refused");
    command.env = [("CANARY".to_owned(), "its own".to_owned())].into();
    command.merge_stderr = true;
    let outcome = sandbox.run(command, options()).await.unwrap();
    let output = super::text(&outcome);
    assert!(output.starts_with("its own\n") && output.ends_with("refused\n"), "{output}");
    // Files created there appear in the session's workspace at once.
    bash_in(&sandbox, "mkdir -p a/b; echo made > a/b/file").await;
    assert_eq!(fs::read_to_string(tenant.workspace().join("a/b/file")).unwrap(), "made\n");
    fs::write(tenant.workspace().join("late"), "given").unwrap();
    fs::set_permissions(tenant.workspace().join("late"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(bash_in(&sandbox, "cat late").await, "given");
    // And what comes later.
    let store = tenant.data.store();
    let digest = store.insert_bytes(b"late", FileMode::Plain).unwrap().digest;
    let artifact = ContentItem::file(ContentDir::Artifacts, "late", store, digest, FileMode::Plain);
    sandbox.install_content(artifact, options()).await.unwrap();
    assert_eq!(bash_in(&sandbox, "cat /artifacts/late").await, "late");
    sandbox.remove_content(ContentDir::Artifacts, "late", options()).await.unwrap();
    assert_eq!(bash_in(&sandbox, "ls /artifacts").await, "");
    sandbox.cleanup().await;
    assert_eq!(fixture.leftovers(), [""; 0]);
    let owner = fs::metadata(tenant.workspace().join("a/b/file")).unwrap().uid();
    assert_eq!(owner, rustix::process::geteuid().as_raw(), "S8");
    assert!(tenant.data.remove_workspace("ses_1").unwrap());
}

/// As after the crash of a sandbox, the next one has the same files.
pub(crate) async fn a_spare_takes_over_a_workspace_with_files(fixture: WarmSandboxFixture) {
    let tenant = fixture.tenant("acme");
    let first = tenant.claim(fixture.warm_sandbox().await).await.unwrap();
    bash_in(
        &first,
        "mkdir -p a/b; echo one > a/b/file; echo two > .hidden; ln -s a/b/file link; chmod 500 a",
    )
    .await;
    first.cleanup().await;
    let second = tenant.claim(fixture.warm_sandbox().await).await.unwrap();
    let output =
        bash_in(&second, "cat link .hidden; stat -c %a a; chmod 700 a; echo more >> link; rm .hidden").await;
    assert_eq!(output, "one\ntwo\n500\n");
    assert_eq!(fs::read_to_string(tenant.workspace().join("a/b/file")).unwrap(), "one\nmore\n");
    second.cleanup().await;
    // A sandbox that was made for it has the same.
    let third = fixture.fresh_sandbox(&tenant).await;
    assert_eq!(bash_in(&third, "cat link; ls -A").await, "one\nmore\na\nlink\n");
    third.cleanup().await;
    assert_eq!(fixture.leftovers(), [""; 0]);
}

/// A warm sandbox that a tenant claims has nothing of another tenant, before and after it is used.
pub(crate) async fn two_tenants_of_one_pool_are_isolated(fixture: WarmSandboxFixture) {
    let (one, other) = (fixture.tenant("acme"), fixture.tenant("beta"));
    let warm_sandboxes = [fixture.warm_sandbox().await, fixture.warm_sandbox().await];
    let [first, second] = warm_sandboxes;
    let first = one.claim(first).await.unwrap();
    bash_in(&first, "echo canary of acme | tee file /tmp/file ~/file").await;
    let second = other.claim(second).await.unwrap();
    let look = "env; cat /mnt/skills/*/* /artifacts/* /workspace/* /tmp/* ~/* 2>&1; ls /output /mnt/skills; cat /proc/*/environ | tr '\\0' '\\n'";
    let outcome = second.run(Command::bash(look), options()).await.unwrap();
    let output = super::text(&outcome);
    assert!(output.contains("canary of beta") && !output.contains("acme"), "{output}");
    first.cleanup().await;
    second.cleanup().await;
}

/// Session options that need a fresh sandbox.
pub(crate) async fn unsupported_uses_of_a_warm_sandbox_are_rejected_harmlessly(fixture: WarmSandboxFixture) {
    let tenant = fixture.tenant("acme");
    let own_dir = tempfile::tempdir().unwrap();
    fs::write(tenant.workspace().join("file"), "kept").unwrap();
    let changes: [&dyn Fn(&mut ExecutionContext); 4] = [
        &|context| context.workspace = own_dir.path().to_owned(),
        &|context| context.allowed_paths = vec![own_dir.path().to_owned()],
        &|context| context.limits = context.limits.with_processes(77).unwrap(),
        &|context| context.read_only = vec![SharedDir::new(own_dir.path(), "/data")],
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut context = tenant.context.clone();
        change(&mut context);
        let warm_sandbox = fixture.warm_sandbox().await;
        // Where the workspace lies, only the data directory knows.
        assert_eq!(warm_sandbox.spec().serves(&context), number == 0);
        let error = warm_sandbox.claim(&context, &tenant.data, soon(120)).await.unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::Unsupported, "{error}");
        assert_eq!(fixture.leftovers(), [""; 0]);
    }
    let sandbox = fixture.fresh_sandbox(&tenant).await;
    assert_eq!(bash_in(&sandbox, "cat file").await, "kept");
    sandbox.cleanup().await;
}

/// Dropped at every await point: the session has its files, nothing is left of the warm sandbox.
pub(crate) async fn a_dropped_claim_leaves_nothing(fixture: WarmSandboxFixture) {
    let tenant = fixture.tenant("acme");
    for name in ["one", "two", ".three"] {
        fs::write(tenant.workspace().join(name), name).unwrap();
    }
    let mut dropped = 0;
    for polls in (0..).flat_map(|polls| [polls; 3]) {
        let warm_sandbox = fixture.warm_sandbox().await;
        if let Some(claimed) = poll_at_most(polls, tenant.claim(warm_sandbox)).await {
            claimed.unwrap().cleanup().await;
            break;
        }
        dropped += 1;
        super::until("nothing of it is left", || fixture.leftovers().is_empty()).await;
        tenant.data.finish_workspace_swap(tenant.workspace()).unwrap();
        assert_eq!(fs::read_dir(tenant.workspace()).unwrap().count(), 3, "after {polls}");
    }
    assert!(dropped > 3, "{dropped}");
    let sandbox = fixture.fresh_sandbox(&tenant).await;
    assert_eq!(bash_in(&sandbox, "cat one two .three").await, "onetwo.three");
    sandbox.cleanup().await;
    assert_eq!(fixture.leftovers(), [""; 0]);
}

/// The output of a future that is ready after at most `polls` polls; otherwise it is dropped.
async fn poll_at_most<T>(mut times: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if times == 0 {
            return Poll::Ready(None);
        }
        times -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// A warm sandbox that dies in the pool reports it; its claim fails and loses nothing.
pub(crate) async fn a_dead_warm_sandbox_is_lost(
    fixture: WarmSandboxFixture,
    kill: impl AsyncFn(&WarmSandboxFixture),
) {
    let tenant = fixture.tenant("acme");
    fs::write(tenant.workspace().join("file"), "kept").unwrap();
    let warm_sandbox = fixture.warm_sandbox().await;
    let ended = warm_sandbox.wait_ended();
    kill(&fixture).await;
    assert_eq!(ended.await.kind(), SandboxErrorKind::Lost);
    assert!(warm_sandbox.failure().is_some());
    let error = tenant.claim(warm_sandbox).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Lost, "{error}");
    assert_eq!(fixture.leftovers(), [""; 0]);
    let sandbox = fixture.fresh_sandbox(&tenant).await;
    assert_eq!(bash_in(&sandbox, "cat file").await, "kept");
    sandbox.cleanup().await;
}

/// The quota is the session's, with what it had before.
pub(crate) async fn a_claimed_warm_sandbox_keeps_its_quota(fixture: WarmSandboxFixture) {
    const MIB: u64 = 1 << 20;
    let mut tenant = fixture.tenant("acme");
    tenant.context.limits = tenant.context.limits.with_disk(8 * MIB).unwrap();
    fs::write(tenant.workspace().join("before"), vec![0; 6 << 20]).unwrap();
    let warm_sandbox = fixture.warm_sandbox_for(&tenant.context).await.unwrap();
    let sandbox = tenant.claim(warm_sandbox).await.unwrap();
    assert_eq!(bash_in(&sandbox, "head -c 1M /dev/zero > little; echo well").await, "well\n");
    let outcome =
        sandbox.run(Command::bash("head -c 4M /dev/zero > much; sleep 1000"), options()).await.unwrap();
    assert!(
        matches!(outcome.end, CommandEnd::QuotaExceeded(excess) if excess.used.bytes > 8 * MIB),
        "{outcome:?}"
    );
    sandbox.cleanup().await;
}

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
    SandboxError, SandboxErrorKind, SharedFolder, WarmSandbox, WarmSpec,
};
use conjure_store::FileMode;
use tempfile::TempDir;

use super::{PatientClock, bash_in, options, soon};

/// Makes a connector whose folders lie there.
type Make = dyn Fn(&DataDir) -> Box<dyn Connector>;

/// The data folder of spares, and those of tenants, on one file system; and a kind of sandbox.
pub(crate) struct House {
    make: Box<Make>,
    pub(crate) pool: DataDir,
    folder: TempDir,
}

/// A tenant's session, before it has a sandbox.
pub(crate) struct Tenant {
    pub(crate) data: DataDir,
    pub(crate) context: ExecutionContext,
}

impl House {
    /// With sandboxes of connectors that have their folders there.
    pub(crate) fn of<C: Connector + 'static>(make: impl Fn(DataDir) -> C + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pool = DataDir::open(&folder.path().join("pool")).unwrap();
        Self { make: Box::new(move |data| Box::new(make(data.clone()))), pool, folder }
    }

    /// A tenant with a skill of its own, and a secret.
    pub(crate) fn tenant(&self, name: &str) -> Tenant {
        let data = DataDir::open(&self.folder.path().join(name)).unwrap();
        let skill = self.folder.path().join(format!("skill-of-{name}"));
        fs::create_dir_all(&skill).unwrap();
        fs::write(skill.join("SKILL.md"), format!("canary of {name}")).unwrap();
        let workspace = data.named_workspace("ses_1").unwrap();
        let mut context = ExecutionContext::new(workspace);
        context.read_only = vec![SharedFolder::new(skill, format!("/mnt/skills/{name}"))];
        context.environment = [("CANARY".to_owned(), format!("canary of {name}"))].into();
        Tenant { data, context }
    }

    pub(crate) async fn spare(&self) -> WarmSandbox {
        self.spare_for(&ExecutionContext::new("/")).await.unwrap()
    }

    pub(crate) async fn spare_for(&self, context: &ExecutionContext) -> Result<WarmSandbox, SandboxError> {
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
    pub(crate) async fn cold(&self, tenant: &Tenant) -> Sandbox {
        tenant.data.finish_workspace_swap(tenant.workspace()).unwrap();
        let connector = (self.make)(&tenant.data);
        Sandbox::open(&*connector, &tenant.context, Arc::new(PatientClock), soon(120)).await.unwrap()
    }

    /// What spares have on the disk.
    pub(crate) fn left(&self) -> Vec<String> {
        let folders = ["sandboxes", "workspaces"].map(|name| self.pool.path().join(name));
        let names = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
        names.map(|entry| entry.unwrap().path().display().to_string()).collect()
    }
}

impl Tenant {
    pub(crate) fn workspace(&self) -> &Path {
        &self.context.workspace
    }

    pub(crate) async fn claim(&self, spare: WarmSandbox) -> Result<Sandbox, SandboxError> {
        spare.claim(&self.context, &self.data, soon(120)).await
    }
}

/// A session has in a spare what it has in a sandbox that was made for it.
pub(crate) async fn a_claimed_spare_is_the_sessions(house: House) {
    let tenant = house.tenant("acme");
    let spare = house.spare().await;
    assert_eq!(spare.failure(), None);
    let sandbox = tenant.claim(spare).await.unwrap();
    assert_eq!(sandbox.layout(), &(house.make)(&tenant.data).layout(&tenant.context).unwrap());
    let said = bash_in(&sandbox, "echo $CANARY; cat /mnt/skills/acme/SKILL.md; pwd; ls -A").await;
    let cold = house.tenant("cold");
    let made = house.cold(&cold).await;
    let said_cold = bash_in(&made, "echo $CANARY; cat /mnt/skills/cold/SKILL.md; pwd; ls -A").await;
    assert_eq!(said.replace("acme", "cold"), said_cold);
    // The same variables, but for the secret's.
    let variables = "env | grep -v -e ^CANARY= -e ^_= | sort";
    assert_eq!(bash_in(&sandbox, variables).await, bash_in(&made, variables).await);
    made.cleanup().await;
    // What a command wants for itself wins; the shelves can be read and not written.
    let mut own = Command::bash("echo $CANARY; echo x > /mnt/skills/acme/SKILL.md || echo refused");
    own.env = [("CANARY".to_owned(), "its own".to_owned())].into();
    own.merge_stderr = true;
    let outcome = sandbox.run(own, options()).await.unwrap();
    let said = super::text(&outcome);
    assert!(said.starts_with("its own\n") && said.ends_with("refused\n"), "{said}");
    // What is made there is at the session's place at once.
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
    assert_eq!(house.left(), [""; 0]);
    let owner = fs::metadata(tenant.workspace().join("a/b/file")).unwrap().uid();
    assert_eq!(owner, rustix::process::geteuid().as_raw(), "S8");
    assert!(tenant.data.remove_workspace("ses_1").unwrap());
}

/// As after the death of a sandbox: another one, with the same files (S11).
pub(crate) async fn a_spare_takes_over_a_workspace_with_files(house: House) {
    let tenant = house.tenant("acme");
    let first = tenant.claim(house.spare().await).await.unwrap();
    bash_in(
        &first,
        "mkdir -p a/b; echo one > a/b/file; echo two > .hidden; ln -s a/b/file link; chmod 500 a",
    )
    .await;
    first.cleanup().await;
    let second = tenant.claim(house.spare().await).await.unwrap();
    let said =
        bash_in(&second, "cat link .hidden; stat -c %a a; chmod 700 a; echo more >> link; rm .hidden").await;
    assert_eq!(said, "one\ntwo\n500\n");
    assert_eq!(fs::read_to_string(tenant.workspace().join("a/b/file")).unwrap(), "one\nmore\n");
    second.cleanup().await;
    // A sandbox that was made for it has the same.
    let third = house.cold(&tenant).await;
    assert_eq!(bash_in(&third, "cat link; ls -A").await, "one\nmore\na\nlink\n");
    third.cleanup().await;
    assert_eq!(house.left(), [""; 0]);
}

/// A12: nothing of one tenant is in a spare that another claims, and nothing comes back.
pub(crate) async fn two_tenants_of_one_pool_see_nothing_of_each_other(house: House) {
    let (one, other) = (house.tenant("acme"), house.tenant("beta"));
    let spares = [house.spare().await, house.spare().await];
    let [first, second] = spares;
    let first = one.claim(first).await.unwrap();
    bash_in(&first, "echo canary of acme | tee file /tmp/file ~/file").await;
    let second = other.claim(second).await.unwrap();
    let look = "env; cat /mnt/skills/*/* /artifacts/* /workspace/* /tmp/* ~/* 2>&1; ls /output /mnt/skills; cat /proc/*/environ | tr '\\0' '\\n'";
    let outcome = second.run(Command::bash(look), options()).await.unwrap();
    let said = super::text(&outcome);
    assert!(said.contains("canary of beta") && !said.contains("acme"), "{said}");
    first.cleanup().await;
    second.cleanup().await;
}

/// What a session needs that a sandbox must be made with.
pub(crate) async fn what_a_spare_does_not_serve_is_refused_and_harms_nothing(house: House) {
    let tenant = house.tenant("acme");
    let own = tempfile::tempdir().unwrap();
    fs::write(tenant.workspace().join("file"), "kept").unwrap();
    let changes: [&dyn Fn(&mut ExecutionContext); 4] = [
        &|context| context.workspace = own.path().to_owned(),
        &|context| context.allowed_paths = vec![own.path().to_owned()],
        &|context| context.limits = context.limits.with_processes(77).unwrap(),
        &|context| context.read_only = vec![SharedFolder::new(own.path(), "/data")],
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut context = tenant.context.clone();
        change(&mut context);
        let spare = house.spare().await;
        // Where the workspace lies, only the data folder knows.
        assert_eq!(spare.spec().serves(&context), number == 0);
        let error = spare.claim(&context, &tenant.data, soon(120)).await.unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::Unsupported, "{error}");
        assert_eq!(house.left(), [""; 0]);
    }
    let sandbox = house.cold(&tenant).await;
    assert_eq!(bash_in(&sandbox, "cat file").await, "kept");
    sandbox.cleanup().await;
}

/// Dropped at every await point: the session has its files, nothing is left of the spare.
pub(crate) async fn a_claim_that_is_dropped_leaves_nothing(house: House) {
    let tenant = house.tenant("acme");
    for name in ["one", "two", ".three"] {
        fs::write(tenant.workspace().join(name), name).unwrap();
    }
    let mut dropped = 0;
    for polls in (0..).flat_map(|polls| [polls; 3]) {
        let spare = house.spare().await;
        if let Some(claimed) = polled(polls, tenant.claim(spare)).await {
            claimed.unwrap().cleanup().await;
            break;
        }
        dropped += 1;
        super::until("nothing of it is left", || house.left().is_empty()).await;
        tenant.data.finish_workspace_swap(tenant.workspace()).unwrap();
        assert_eq!(fs::read_dir(tenant.workspace()).unwrap().count(), 3, "after {polls}");
    }
    assert!(dropped > 3, "{dropped}");
    let sandbox = house.cold(&tenant).await;
    assert_eq!(bash_in(&sandbox, "cat one two .three").await, "onetwo.three");
    sandbox.cleanup().await;
    assert_eq!(house.left(), [""; 0]);
}

/// What comes of a future that is polled so often, if it is ready by then; else it is dropped.
async fn polled<T>(mut times: usize, future: impl Future<Output = T>) -> Option<T> {
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

/// A spare that dies while it waits says so, and whoever claims it is told and has lost nothing.
pub(crate) async fn a_spare_that_has_died_is_lost(house: House, kill: impl AsyncFn(&House)) {
    let tenant = house.tenant("acme");
    fs::write(tenant.workspace().join("file"), "kept").unwrap();
    let spare = house.spare().await;
    let ended = spare.wait_ended();
    kill(&house).await;
    assert_eq!(ended.await.kind(), SandboxErrorKind::Lost);
    assert!(spare.failure().is_some());
    let error = tenant.claim(spare).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Lost, "{error}");
    assert_eq!(house.left(), [""; 0]);
    let sandbox = house.cold(&tenant).await;
    assert_eq!(bash_in(&sandbox, "cat file").await, "kept");
    sandbox.cleanup().await;
}

/// The quota is the session's, with what it had before.
pub(crate) async fn a_claimed_spare_keeps_its_quota(house: House) {
    const MIB: u64 = 1 << 20;
    let mut tenant = house.tenant("acme");
    tenant.context.limits = tenant.context.limits.with_disk(8 * MIB).unwrap();
    fs::write(tenant.workspace().join("before"), vec![0; 6 << 20]).unwrap();
    let spare = house.spare_for(&tenant.context).await.unwrap();
    let sandbox = tenant.claim(spare).await.unwrap();
    assert_eq!(bash_in(&sandbox, "head -c 1M /dev/zero > little; echo well").await, "well\n");
    let outcome =
        sandbox.run(Command::bash("head -c 4M /dev/zero > much; sleep 1000"), options()).await.unwrap();
    assert!(
        matches!(outcome.end, CommandEnd::QuotaExceeded(excess) if excess.used.bytes > 8 * MIB),
        "{outcome:?}"
    );
    sandbox.cleanup().await;
}

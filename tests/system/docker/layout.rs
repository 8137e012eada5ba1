//! The paths in a container, and the owners of its files.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::sync::Arc;

use bollard::query_parameters::ListContainersOptionsBuilder;
use conjure_base::{SessionId, TenantId};
use conjure_sandbox::{
    Access, CommandEnd, Connector, ContentDir, ContentItem, DataDir, DockerOptions, EngineAddress, Executor,
    HostMount, Jail, Sandbox, SandboxErrorKind, SharedDir, View,
};
use conjure_store::FileMode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use crate::container_fixture::{ContainerFixture, open};
use crate::support::{options, soon};

#[tokio::test]
async fn a_container_has_the_layout_of_a_jail() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let container = fixture.container().await;
    assert_eq!(
        container.sh("whoami; id -gn; pwd; echo ~ $USER $LANG $TZ $OMP_NUM_THREADS; cat /proc/sys/kernel/hostname /proc/1/comm")
            .await,
        "sandbox\nsandbox\n/workspace\n/home/sandbox sandbox C.UTF-8 Asia/Tokyo 1\nsandbox\nconjure-guest\n"
    );
    let places = "for it in \"$(mktemp)\" ~/.cache/x /dev/shm/x ./x; do mkdir -p \"${it%/*}\" && echo y > \"$it\" && \
                  cat \"$it\"; done";
    assert_eq!(container.sh(places).await, "y\n".repeat(4));
    // Programs can be run from memory, as they can on any machine.
    assert_eq!(
        container.sh("printf '#!/bin/sh\\necho made\\n' > /tmp/run && chmod +x /tmp/run && /tmp/run").await,
        "made\n"
    );
    assert_eq!(
        container.sh("ls -A /mnt/skills /artifacts /output").await,
        "/artifacts:\n\n/mnt/skills:\n\n/output:\n"
    );
    assert_eq!(container.sh("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").await, "lo\n");
    container.sandbox.cleanup().await;
}

/// As `docker ps --filter label=conjure.session=…` finds it.
#[tokio::test]
async fn a_container_is_found_by_its_session_and_its_tenant() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let session = SessionId::random().unwrap();
    let connector = fixture.connector();
    let it = fixture
        .container_with(&connector, |context| {
            context.session = Some(session);
            context.tenant = Some(TenantId::new("acme").unwrap());
        })
        .await;
    let other = fixture.container().await;
    let label = format!("conjure.session={session}");
    let filters = HashMap::from([("label", vec![label.as_str()])]);
    let options = ListContainersOptionsBuilder::new().filters(&filters).build();
    let mut found = fixture.engine().await.list_containers(Some(options)).await.unwrap();
    let labels = found.remove(0).labels.unwrap();
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(labels["conjure.tenant"], "acme");
    it.sandbox.cleanup().await;
    let labels = fixture.inspected().await.config.unwrap().labels.unwrap();
    assert_eq!((labels["conjure.tenant"].as_str(), labels["conjure.session"].as_str()), ("", ""));
    other.sandbox.cleanup().await;
}

#[tokio::test]
async fn python_finds_its_required_environment() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let container = fixture.container().await;
    let program = "import multiprocessing, getpass, os, subprocess, tempfile, threading\n\
        queue = multiprocessing.Queue()\n\
        child = multiprocessing.Process(target=queue.put, args=(7,)); child.start(); print(queue.get()); child.join()\n\
        with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))\n\
        print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip())\n\
        t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n\
        print(getpass.getuser(), os.path.expanduser('~'), tempfile.gettempdir())";
    let outcome = container.run(&["python3", "-c", program]).await.unwrap();
    assert_eq!(crate::support::text(&outcome), "7\n[1, 2]\nchild\nthread\nsandbox /home/sandbox /tmp\n");
    container.sandbox.cleanup().await;
}

#[tokio::test]
async fn files_of_commands_belong_to_the_host_again() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let connector = fixture.connector();
    let it = fixture
        .container_with(&connector, |context| {
            fs::write(context.workspace.join("old"), "1").unwrap();
        })
        .await;
    assert_ne!(it.sh("id -u").await, "0\n");
    it.sh("echo 2 >> old; mkdir -p made/deep; echo x > made/deep/file; chmod 600 made/deep/file").await;
    it.sandbox.cleanup().await;
    let own_uid = rustix::process::geteuid().as_raw();
    for name in ["", "old", "made", "made/deep", "made/deep/file"] {
        assert_eq!(fs::metadata(it.workspace.path().join(name)).unwrap().uid(), own_uid, "{name}");
    }
    assert_eq!(fs::read_to_string(it.workspace.path().join("old")).unwrap(), "12\n");
    fs::remove_dir_all(it.workspace.path().join("made")).unwrap();
    fixture.until_nothing_is_left().await;
}

#[tokio::test]
async fn commands_run_as_the_workspaces_owner() {
    let Some(fixture) = ContainerFixture::new() else { return };
    if !rustix::process::geteuid().is_root() {
        test_support::skip("only root can have a workspace that is somebody else's", "run the tests as root");
        return;
    }
    let connector = fixture.connector();
    let it = fixture
        .container_with(&connector, |context| chown(&context.workspace, Some(4321), Some(1234)).unwrap())
        .await;
    assert_eq!(
        it.sh("id -u; id -g; whoami; touch file; stat -c %u:%g file").await,
        "4321\n1234\nsandbox\n4321:1234\n"
    );
    it.sandbox.cleanup().await;
    // One that the image does not know, and no group: the engine would choose root's.
    let user = DockerOptions { user: Some("1234".to_owned()), ..fixture.options() };
    let connector = conjure_sandbox::Docker::new(user, []);
    let it = fixture
        .container_with(&connector, |context| {
            fs::set_permissions(&context.workspace, fs::Permissions::from_mode(0o777)).unwrap();
        })
        .await;
    assert_eq!(it.sh("id -u; id -g; id -G; touch file && echo made").await, "1234\n1234\n1234\nmade\n");
    it.sandbox.cleanup().await;
}

#[tokio::test]
async fn skills_and_volumes_are_mounted_read_only_at_their_paths() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let host = tempfile::tempdir().unwrap();
    for (dir, text) in [("skill", "a skill"), ("fixed", "a volume"), ("open", "written")] {
        fs::create_dir(host.path().join(dir)).unwrap();
        fs::write(host.path().join(dir).join("file"), text).unwrap();
    }
    fs::set_permissions(host.path().join("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let volume = |name: &str, access| HostMount {
        host: host.path().join(name),
        target: format!("/data/{name}").into(),
        access,
    };
    let volumes = vec![volume("fixed", Access::ReadOnly), volume("open", Access::ReadWrite)];
    let connector = conjure_sandbox::Docker::new(DockerOptions { volumes, ..fixture.options() }, []);
    let skill = SharedDir::new(host.path().join("skill"), "/mnt/skills/one");
    let container = fixture.container_with(&connector, |context| context.read_only = vec![skill]).await;
    assert_eq!(container.sh("cat /mnt/skills/one/file /data/fixed/file").await, "a skilla volume");
    for path in ["/mnt/skills/one/x", "/mnt/skills/x", "/data/fixed/x", "/usr/x", "/etc/x", "/x", "/output/x"]
    {
        let outcome = container.run(&["sh", "-c", &format!("echo x > {path}")]).await.unwrap();
        assert_ne!(outcome.end, CommandEnd::Exited(0), "{path}");
    }
    container.sh("echo x > /data/open/x").await;
    assert!(host.path().join("open/x").exists());
    let view = container.sandbox.view("/mnt/skills/one/file", None, 100, options()).await.unwrap();
    assert!(matches!(view, View::Text { text, .. } if text == "a skill"));
    let refused = container.sandbox.create_file("/mnt/skills/one/file", b"x", options()).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::PathNotAllowed);
    container.sandbox.cleanup().await;
}

#[tokio::test]
async fn content_appears_in_a_running_container() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::open(dir.path()).unwrap();
    let store = data.store();
    let digest = store.insert_bytes(b"late", FileMode::Plain).unwrap().digest;
    let connector = fixture.connector().with_data(data.clone());
    let container = fixture.container_with(&connector, |_| {}).await;
    let provision = ContentItem::file(ContentDir::Artifacts, "late.txt", store, digest, FileMode::Plain);
    let path = container.sandbox.install_content(provision.clone(), options()).await.unwrap();
    assert_eq!(container.sh(&format!("cat {}", path.display())).await, "late");
    assert_eq!(container.sandbox.install_content(provision, options()).await.unwrap(), path);
    let other = store.insert_bytes(b"other", FileMode::Plain).unwrap().digest;
    let other = ContentItem::file(ContentDir::Artifacts, "late.txt", store, other, FileMode::Plain);
    let second = container.sandbox.install_content(other.clone(), options()).await.unwrap_err();
    assert_eq!(second.kind(), SandboxErrorKind::Exists);
    let change = container
        .run(&["sh", "-c", "echo x > /artifacts/late.txt || rm -f /artifacts/late.txt"])
        .await
        .unwrap();
    assert_ne!(change.end, CommandEnd::Exited(0));
    // Taken off while a command has it open.
    let reading = "exec 3< /artifacts/late.txt; touch /workspace/open; until [ ! -e /artifacts/late.txt ]; do :; done; cat <&3";
    let reading = container.sh(reading);
    let withdrawing = async {
        while container.sandbox.read("/workspace/open", options()).await.is_err() {}
        container.sandbox.remove_content(ContentDir::Artifacts, "late.txt", options()).await.unwrap();
    };
    let (read, ()) = futures_util::future::join(reading, withdrawing).await;
    assert_eq!(read, "late");
    container.sandbox.install_content(other, options()).await.unwrap();
    assert_eq!(container.sh("cat /artifacts/late.txt").await, "other");
    container.sandbox.cleanup().await;
    let leftovers: Vec<_> = fs::read_dir(data.sandboxes().path()).unwrap().collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[tokio::test]
async fn mounts_that_expose_the_engine_are_rejected() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let volume = |host: &str, target: &str| HostMount {
        host: host.into(),
        target: target.into(),
        access: Access::ReadOnly,
    };
    let connector = fixture.connector();
    let address = connector.check_environment().await.unwrap().address;
    let EngineAddress::Unix(socket) = address else { panic!("it is on another machine") };
    let (dir, itself) = (socket.parent().unwrap(), fs::canonicalize(&socket).unwrap());
    for (volume, message) in [
        (volume(dir.to_str().unwrap(), "/data"), "the socket of a container engine"),
        (volume(itself.to_str().unwrap(), "/data/socket"), "the socket of a container engine"),
        (volume("/usr", "/etc"), "the sandbox's own `/etc`"),
        (volume("/usr", "/etc/deep"), "the sandbox's own `/etc`"),
        (volume("/usr", "/proc/x"), "the sandbox's own `/proc`"),
        (volume("/usr", "/.conjure"), "the sandbox's own `/.conjure`"),
        (volume("/usr", "/data/../etc"), "no place in a sandbox"),
        (volume("/no/such/directory", "/data"), "cannot be used"),
    ] {
        let options = DockerOptions { volumes: vec![volume], ..fixture.options() };
        let workspace = tempfile::tempdir().unwrap();
        let context = conjure_sandbox::ExecutionContext::new(workspace.path());
        let refused = open(&conjure_sandbox::Docker::new(options, []), &context).await.unwrap_err();
        assert!(refused.to_string().contains(message), "{refused}");
    }
    assert!(fixture.containers().await.is_empty());
}

#[tokio::test]
async fn host_files_are_in_no_volume() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(&home.path().join("data")).unwrap();
    let workspace = home.path().join("work");
    fs::create_dir_all(workspace.join("deep")).unwrap();
    let neighbour = data.workspace().unwrap();
    for (host, access, message) in [
        (home.path(), Access::ReadWrite, "contains the data directory"),
        (home.path(), Access::ReadOnly, "contains the data directory"),
        (neighbour.path(), Access::ReadOnly, "lies in the data directory"),
        (&workspace.join("deep"), Access::ReadOnly, "contains the read-only directory"),
        (&workspace, Access::ReadOnly, "lies in the read-only directory"),
    ] {
        let volumes = vec![HostMount { host: host.to_owned(), target: "/data".into(), access }];
        let options = DockerOptions { volumes, ..fixture.options() };
        let connector = conjure_sandbox::Docker::new(options, []).with_data(data.clone());
        let context = conjure_sandbox::ExecutionContext::new(&workspace);
        let refused = open(&connector, &context).await.unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::PathNotAllowed, "{refused}");
        assert!(refused.to_string().contains(message), "{refused}");
    }
    assert!(fixture.containers().await.is_empty());
}

/// A directory that is handed over to a container's user is not taken for what a crashed host left.
#[tokio::test]
async fn a_directory_of_root_is_used_by_one_container_at_a_time() {
    let Some(fixture) = ContainerFixture::new() else { return };
    if !rustix::process::geteuid().is_root() {
        test_support::skip("only root hands directories over", "run the tests as root");
        return;
    }
    let connector = fixture.connector();
    let first = fixture.container().await;
    let context = conjure_sandbox::ExecutionContext::new(first.workspace.path());
    let refused = open(&connector, &context).await.unwrap_err();
    assert!(refused.to_string().contains("the user of another sandbox that runs"), "{refused}");
    assert_eq!(refused.kind(), SandboxErrorKind::Unavailable);
    let jail: Box<dyn Connector> = Box::new(Jail::new([]));
    let clock = Arc::new(conjure_base::SystemClock);
    let refused = Sandbox::open(&*jail, &context, clock, soon(120)).await.unwrap_err();
    assert!(refused.to_string().contains("the user of another sandbox that runs"), "{refused}");
    assert_eq!(first.sh("echo mine > file && cat file").await, "mine\n");
    // One whose end is under way is waited for.
    let (second, ()) = tokio::join!(open(&connector, &context), first.sandbox.cleanup());
    second.unwrap().cleanup().await;
    assert_eq!(fs::metadata(first.workspace.path().join("file")).unwrap().uid(), 0);
}

#[tokio::test]
async fn two_volumes_cannot_share_a_path() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let volume =
        |host: &str| HostMount { host: host.into(), target: "/data".into(), access: Access::ReadOnly };
    let options =
        DockerOptions { volumes: vec![volume("/usr/bin"), volume("/usr/lib")], ..fixture.options() };
    let workspace = tempfile::tempdir().unwrap();
    let context = conjure_sandbox::ExecutionContext::new(workspace.path());
    let refused = open(&conjure_sandbox::Docker::new(options, []), &context).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::PathNotAllowed);
    assert!(refused.to_string().contains("would take the place of `/usr/bin`"), "{refused}");
}

/// Between the look at a directory and its mount another sandbox may put a link in its place.
#[tokio::test]
async fn a_directory_swapped_before_mounting_is_rejected() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let parent = dir.path().join("around");
    for name in ["work", "secret"] {
        fs::create_dir_all(parent.join(name)).unwrap();
    }
    let (work, swapped) = (parent.join("work"), parent.clone());
    // In front of the engine: when it is asked to make a container, the directory has been looked at.
    let swap = move || {
        fs::rename(swapped.join("work"), swapped.join("old")).unwrap();
        std::os::unix::fs::symlink("secret", swapped.join("work")).unwrap();
    };
    let socket = dir.path().join("engine");
    let [EngineAddress::Unix(real)] = &fixture.options().engine[..] else { panic!("it has a socket") };
    let _passing = before_engine(real.clone(), &socket, "/containers/create", swap);
    let engine = vec![EngineAddress::Unix(socket)];
    let connector = conjure_sandbox::Docker::new(DockerOptions { engine, ..fixture.options() }, []);
    let refused = open(&connector, &conjure_sandbox::ExecutionContext::new(&work)).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::PathNotAllowed, "{refused}");
    assert!(refused.to_string().contains("was another directory when"), "{refused}");
    assert!(fixture.containers().await.is_empty());
    assert_eq!(fs::read_dir(parent.join("secret")).unwrap().count(), 0);
}

/// A socket that passes everything on to the engine and back, and does this once before it passes on a request for `path`.
fn before_engine(
    real: std::path::PathBuf,
    socket: &std::path::Path,
    path: &'static str,
    once: impl FnOnce() + Send + 'static,
) -> JoinSet<()> {
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    let mut once = Some(once);
    let mut all = JoinSet::new();
    all.spawn(async move {
        let mut passed = JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let mut engine = tokio::net::UnixStream::connect(&real).await.unwrap();
            let mut first = [0; 4096];
            let length = client.read(&mut first).await.unwrap();
            if String::from_utf8_lossy(&first[..length]).contains(path)
                && let Some(once) = once.take()
            {
                once();
            }
            passed.spawn(async move {
                engine.write_all(&first[..length]).await.unwrap();
                // Whichever ends first, the other gets an error.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut engine).await;
            });
        }
    });
    all
}

//! The jail from the host's side, against the machine's real namespaces: what is there, what is not, whose it is.
//!
//! A test process that is root runs all of this a second time, as a user that owns nothing.

#![expect(clippy::unwrap_used, reason = "tests fail by panic")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use conjure_base::SystemClock;
use conjure_sandbox::{
    Boundary, Command, CommandEnd, Connector as _, ExecutionContext, Executor, Isolation, Sandbox,
    SandboxErrorKind, SharedFolder, View,
};
use support::{Bed, is_root, jail, jail_bed, jail_bed_with, options, soon, text};

/// What a script writes; it must end well.
#[track_caller]
fn said(outcome: &conjure_sandbox::CommandOutcome) -> String {
    let text = text(outcome);
    assert_eq!(outcome.end, CommandEnd::Exited(0), "{text}");
    text
}

async fn bash(bed: &Bed, script: &str) -> String {
    said(&bed.bash(script).await.unwrap())
}

async fn python(bed: &Bed, program: &str) -> String {
    said(&bed.sandbox.run(Command::new(["python3", "-c", program]), options()).await.unwrap())
}

async fn refused(context: ExecutionContext) -> conjure_sandbox::SandboxError {
    Sandbox::open(&jail(), &context, Arc::new(SystemClock), soon(30)).await.unwrap_err()
}

// ---------------------------------------------------------------------------------------------------------------
// As users expect it.

#[tokio::test]
async fn a_shell_finds_a_usual_machine() {
    let bed = jail_bed().await;
    assert_eq!(
        bash(&bed, "whoami; id -gn; pwd; echo ~ $USER $LANG $TZ; hostname").await,
        "sandbox\nsandbox\n/workspace\n/home/sandbox sandbox C.UTF-8 Asia/Tokyo\nsandbox\n"
    );
    assert_eq!(
        bash(&bed, "date +%Z; locale charmap; printf 'gr\\xc3\\xb6\\xc3\\x9fer' | wc -m").await,
        "JST\nUTF-8\n6\n"
    );
    let places = "for it in \"$(mktemp)\" ~/.cache/x /var/tmp/x /dev/shm/x ./x; do mkdir -p \"${it%/*}\" && \
                  echo y > \"$it\" && cat \"$it\"; done";
    assert_eq!(bash(&bed, places).await, "y\n".repeat(5));
    // Process substitution, here documents, job control without a terminal, a pseudo terminal.
    assert_eq!(
        bash(&bed, "cat <(echo a) <<< b; sleep 0 & wait; exec 3>&1; echo c > /dev/fd/3").await,
        "a\nc\n"
    );
    assert_eq!(
        bash(
            &bed,
            "type -P script > /dev/null || exit 0; script -qec tty /dev/null | tr -d '\\r' | cut -d/ -f1-3"
        )
        .await
        .trim(),
        "/dev/pts"
    );
    assert_eq!(
        bash(&bed, "getent hosts localhost | tr -s ' ' | cut -d' ' -f2; getent passwd 1000 | cut -d: -f6")
            .await,
        "localhost\n/home/sandbox\n"
    );
    // A script with an interpreter line, and one that a command has just made.
    assert_eq!(
        bash(&bed, "printf '#!/usr/bin/env bash\\necho made\\n' > run && chmod +x run && ./run").await,
        "made\n"
    );
}

#[tokio::test]
async fn python_works() {
    let bed = jail_bed().await;
    if bed.bash("type -P python3").await.unwrap().end != CommandEnd::Exited(0) {
        eprintln!("SKIPPED: there is no python3 on this machine");
        return;
    }
    let program = "import getpass, os, pwd, tempfile, time\n\
        print(pwd.getpwuid(os.getuid()).pw_dir, getpass.getuser(), os.path.expanduser('~'))\n\
        with tempfile.NamedTemporaryFile() as f: print(f.name.startswith('/tmp/'), f.write(b'x'))\n\
        print(time.tzname[0], os.getcwd())";
    assert_eq!(python(&bed, program).await, "/home/sandbox sandbox /home/sandbox\nTrue 1\nJST /workspace\n");
    let program = "import multiprocessing, sqlite3, subprocess, threading\n\
        queue = multiprocessing.Queue()\n\
        child = multiprocessing.Process(target=queue.put, args=(7,)); child.start(); print(queue.get()); child.join()\n\
        with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))\n\
        base = sqlite3.connect('data.db'); base.execute('create table t (x)'); base.execute('insert into t values (3)')\n\
        base.commit(); print(base.execute('select x from t').fetchall())\n\
        print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip())\n\
        t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()";
    assert_eq!(python(&bed, program).await, "7\n[1, 2]\n[(3,)]\nchild\nthread\n");
    let shared = "from multiprocessing import shared_memory\n\
        block = shared_memory.SharedMemory(create=True, size=4096); block.buf[0] = 5; print(block.buf[0])\n\
        block.close(); block.unlink()";
    assert_eq!(python(&bed, shared).await, "5\n");
    // The machine's certificates, where it has any.
    let program = "import ssl; print(len(ssl.create_default_context().get_ca_certs()))";
    let certificates: u32 = python(&bed, program).await.trim().parse().unwrap();
    let has_any = fs::read_dir("/etc/ssl/certs").is_ok_and(|mut folder| folder.next().is_some());
    assert!(certificates > 0 || !has_any);
}

#[tokio::test]
async fn node_works_where_it_is_installed() {
    let bed = jail_bed().await;
    if bed.bash("type -P node").await.unwrap().end != CommandEnd::Exited(0) {
        eprintln!("SKIPPED: there is no node on this machine");
        return;
    }
    let program = "const os = require('os'), fs = require('fs');\n\
        console.log(os.userInfo().username, os.homedir(), os.tmpdir(), os.cpus().length > 0);\n\
        fs.writeFileSync('from-node', 'x');\n\
        console.log(require('child_process').execSync('echo child').toString().trim());\n\
        new (require('worker_threads').Worker)('console.log(\"worker\")', {eval: true});";
    let outcome = bed.sandbox.run(Command::new(["node", "-e", program]), options()).await.unwrap();
    assert_eq!(said(&outcome), "sandbox /home/sandbox /tmp true\nchild\nworker\n");
}

#[tokio::test]
async fn git_and_perl_work() {
    let bed = jail_bed().await;
    let script = "git init -q . && git config user.email a@b && git config --global user.name n && echo x > f && \
                  git add f && git commit -qm 'first one' && git log --format=%s%an && git status --porcelain && \
                  git clone -q . ../tmp/copy && cat /tmp/copy/f";
    assert_eq!(bash(&bed, script).await, "first onen\nx\n");
    let perl = "perl -MPOSIX -MFile::Temp=tempfile -e 'my ($f, $n) = tempfile(); print((getpwuid($<))[0], \" \", \
                strftime(\"%Z\", localtime), \" \", -e $n ? 1 : 0, \"\\n\")'";
    assert_eq!(bash(&bed, perl).await, "sandbox JST 1\n");
}

// ---------------------------------------------------------------------------------------------------------------
// What is not there.

#[tokio::test]
async fn nothing_of_the_host_is_to_be_seen() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    let bed = jail_bed().await;
    for path in [
        "/root",
        "/etc/shadow",
        "/etc/ssl/private",
        "/sys",
        "/boot",
        "/var/lib",
        "/etc/ssh",
        "/run/docker.sock",
    ] {
        assert_ne!(
            bed.bash(&format!("ls -d {path}")).await.unwrap().end,
            CommandEnd::Exited(0),
            "{path} is there"
        );
    }
    for path in [secret.path(), bed.workspace.path()] {
        assert_ne!(bed.bash(&format!("ls -d {}", path.display())).await.unwrap().end, CommandEnd::Exited(0));
    }
    assert_eq!(bash(&bed, "ls /home; ls /tmp; ls -A ~").await, "sandbox\n");
    let environment = bash(&bed, "env").await;
    assert!(!environment.contains("ANTHROPIC") && !environment.contains("not for commands"), "{environment}");
    // Its own processes: the guest, a shim, the shell, its child.
    let names = bash(&bed, "cat /proc/[0-9]*/comm 2>/dev/null || true").await;
    assert!(
        names.lines().all(
            |name| ["conjure-guest", "bash", "cat"].iter().any(|known| name.starts_with(known))
        // A guest that is run from memory is called by the number of the file.
        || name.parse::<u32>().is_ok()
        ),
        "{names}"
    );
    assert_eq!(bash(&bed, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").await, "lo\n");
    assert_eq!(
        bash(&bed, "cat /proc/keys | wc -c; grep -h ^Cap /proc/self/status | cut -f2 | sort -u").await,
        "0\n0000000000000000\n"
    );
    let open =
        bash(&bed, "readlink /proc/self/fd/* | grep -v -e '^pipe:' -e '^/dev/null$' -e '^/proc/' || true")
            .await;
    assert_eq!(open, "");
}

#[tokio::test]
async fn what_is_not_for_writing_is_not_written() {
    let bed = jail_bed().await;
    for path in [
        "/x",
        "/usr/x",
        "/etc/x",
        "/etc/passwd",
        "/dev/x",
        "/mnt/x",
        "/output/x",
        "/proc/sys/kernel/hostname",
        "/run/x",
    ] {
        let outcome = bed.bash(&format!("echo x >> {path}")).await.unwrap();
        assert_ne!(outcome.end, CommandEnd::Exited(0), "{path} was written");
    }
    let error = bed.sandbox.create_file("/etc/x", b"x", options()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::PathNotAllowed, "{error}");
    assert!(bed.sandbox.create_file("/tmp/x", b"x", options()).await.is_ok());
}

#[tokio::test]
async fn what_was_achieved_is_told_and_may_be_demanded() {
    let jail = jail();
    let bed = jail_bed().await;
    let achieved = bed.sandbox.isolation();
    for boundary in [achieved.filesystem, achieved.network, achieved.processes, achieved.syscalls] {
        assert_eq!(boundary, Boundary::Enforced, "{achieved:?}");
    }
    assert_eq!(achieved.identity, Boundary::enforced_if(is_root()));
    assert!(jail.isolation().satisfies(&achieved), "no more than the kind promises");
    let floor = Isolation { disk: Boundary::Enforced, ..achieved };
    if !achieved.satisfies(&floor) {
        let error = refused(ExecutionContext { floor, ..ExecutionContext::new(bed.workspace.path()) }).await;
        assert_eq!(error.kind(), SandboxErrorKind::NotEnforced);
        assert!(error.to_string().contains("disk"), "{error}");
    }
    let floor = achieved;
    let open = ExecutionContext { floor, ..ExecutionContext::new(bed.workspace.path()) };
    assert!(Sandbox::open(&jail, &open, Arc::new(SystemClock), soon(30)).await.is_ok());
}

// ---------------------------------------------------------------------------------------------------------------
// Folders.

/// S8.
#[tokio::test]
async fn what_commands_make_is_the_host_s_to_read_and_delete() {
    let bed = jail_bed().await;
    bash(&bed, "umask 077; mkdir -p a/b; echo deep > a/b/c; chmod 000 a/b/c; chmod 500 a; ln -s /etc/passwd link; mkfifo pipe").await;
    bed.sandbox.create_file("by-the-guest", b"x", options()).await.unwrap();
    let own = rustix::process::geteuid().as_raw();
    for name in ["a", "a/b", "a/b/c", "link", "pipe", "by-the-guest"] {
        assert_eq!(fs::symlink_metadata(bed.path(name)).unwrap().uid(), own, "{name}");
    }
    fs::set_permissions(bed.path("a"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(bed.path("a/b/c"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::read_to_string(bed.path("a/b/c")).unwrap(), "deep\n");
    // The other way, too: what the host makes is the commands' own.
    fs::write(bed.path("given"), "from the host").unwrap();
    assert_eq!(
        bash(&bed, "stat -c %U given && echo ' and more' >> given && chmod 600 given && cat given").await,
        "sandbox\nfrom the host and more\n"
    );
    fs::remove_dir_all(bed.path("a")).unwrap();
}

/// A host that is root may work for somebody else.
#[tokio::test]
async fn a_workspace_of_another_user_stays_that_user_s() {
    if !is_root() {
        // It could not give its folder away.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("workspace");
    fs::create_dir(&workspace).unwrap();
    std::os::unix::fs::chown(&workspace, Some(1234), Some(2345)).unwrap();
    let sandbox = Sandbox::open(&jail(), &ExecutionContext::new(&workspace), Arc::new(SystemClock), soon(30))
        .await
        .unwrap();
    let outcome = sandbox.run(Command::bash("stat -c %U . && echo x > made"), options()).await.unwrap();
    assert_eq!(said(&outcome), "sandbox\n");
    let made = fs::metadata(workspace.join("made")).unwrap();
    assert_eq!((made.uid(), made.gid()), (1234, 2345));
}

/// A file system in memory that cannot show its files as somebody else's; it goes when this is dropped.
struct Ramfs(tempfile::TempDir);

impl Ramfs {
    #[expect(clippy::disallowed_methods, reason = "tests mount and unmount")]
    fn mount() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mounted =
            std::process::Command::new("mount").args(["-t", "ramfs", "none"]).arg(folder.path()).status();
        assert!(mounted.unwrap().success());
        Self(folder)
    }
}

impl Drop for Ramfs {
    #[expect(clippy::disallowed_methods, reason = "tests mount and unmount")]
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn where_owners_cannot_be_mapped_files_are_handed_over_and_taken_back() {
    if !is_root() {
        // Nobody is mapped for a host that is not root.
        return;
    }
    let memory = Ramfs::mount();
    let workspace = memory.0.path().join("workspace");
    fs::create_dir(&workspace).unwrap();
    fs::write(workspace.join("given"), "x").unwrap();
    fs::write(workspace.join("linked"), "x").unwrap();
    fs::hard_link(workspace.join("linked"), memory.0.path().join("elsewhere")).unwrap();
    std::os::unix::fs::chown(workspace.join("given"), Some(0), Some(0)).unwrap();
    let open = async || {
        Sandbox::open(&jail(), &ExecutionContext::new(&workspace), Arc::new(SystemClock), soon(30))
            .await
            .unwrap()
    };
    let sandbox = open().await;
    // Folders within folders, more than one could have open.
    let script = "stat -c %U . given; echo y >> given; \
                  perl -e 'for (1..3000) { mkdir \"d\"; chdir \"d\" or die } open my $f, \">\", \"z\" or die'";
    let outcome = sandbox.run(Command::bash(script), options()).await.unwrap();
    assert_eq!(said(&outcome), "sandbox\nsandbox\n");
    let during = fs::metadata(workspace.join("given")).unwrap().uid();
    assert!(during > 1_000_000, "it is the jail's user's meanwhile: {during}");
    assert_eq!(fs::metadata(workspace.join("linked")).unwrap().uid(), 0, "it has a name elsewhere");
    sandbox.cleanup().await;
    for name in ["", "given", "d/d/d"] {
        assert_eq!(fs::metadata(workspace.join(name)).unwrap().uid(), 0, "{name}");
    }
    // A host that crashed leaves them with a user who is nobody's; the next jail takes them back, and is none the worse.
    for path in [workspace.clone(), workspace.join("given")] {
        std::os::unix::fs::chown(path, Some(during), Some(during)).unwrap();
    }
    let sandbox = open().await;
    let outcome = sandbox.run(Command::bash("stat -c %U . given"), options()).await.unwrap();
    assert_eq!(said(&outcome), "sandbox\nsandbox\n");
    sandbox.cleanup().await;
    assert_eq!(fs::metadata(workspace.join("given")).unwrap().uid(), 0);
}

#[tokio::test]
async fn output_that_was_cut_is_whole_in_a_file_that_commands_cannot_change() {
    let bed = jail_bed().await;
    let outcome = bed.bash("seq 100000").await.unwrap();
    let path = outcome.stdout.spill_path.unwrap();
    assert_eq!(bash(&bed, &format!("wc -l < {path}; tail -n 1 {path}")).await, "100000\n100000\n");
    assert_ne!(
        bed.bash(&format!("echo x >> {path} || rm -f {path}")).await.unwrap().end,
        CommandEnd::Exited(0)
    );
    let View::Text { total_lines, .. } = bed.sandbox.view(&path, None, 1 << 20, options()).await.unwrap()
    else {
        panic!("a text");
    };
    assert_eq!(total_lines, 100_000);
    assert!(bed.sandbox.create_file(&path, b"x", options()).await.is_err());
}

#[tokio::test]
async fn skills_and_allowed_folders_are_where_they_should_be() {
    let folders = tempfile::tempdir().unwrap();
    let (skill, data) = (folders.path().join("pdf"), folders.path().join("data"));
    fs::create_dir_all(skill.join("scripts")).unwrap();
    fs::create_dir(&data).unwrap();
    fs::write(skill.join("SKILL.md"), "# PDF").unwrap();
    fs::write(skill.join("scripts/run.sh"), "#!/bin/sh\necho ran\n").unwrap();
    // Readable by its owner alone, as a careful user's are.
    fs::set_permissions(skill.join("SKILL.md"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(skill.join("scripts/run.sh"), fs::Permissions::from_mode(0o700)).unwrap();
    let bed = jail_bed_with(|context| {
        context.read_only.push(SharedFolder::new(&skill, "/mnt/skills/pdf"));
        context.allowed_paths.push(data.clone());
    })
    .await;
    assert_eq!(
        bash(&bed, "cat /mnt/skills/pdf/SKILL.md; /mnt/skills/pdf/scripts/run.sh").await,
        "# PDFran\n"
    );
    for script in
        ["echo x > /mnt/skills/pdf/x", "rm /mnt/skills/pdf/SKILL.md", "chmod 777 /mnt/skills/pdf/SKILL.md"]
    {
        assert_ne!(bed.bash(script).await.unwrap().end, CommandEnd::Exited(0), "{script}");
    }
    let data_real = fs::canonicalize(&data).unwrap();
    bash(&bed, &format!("echo x > {}/made", data_real.display())).await;
    assert_eq!(fs::metadata(data.join("made")).unwrap().uid(), rustix::process::geteuid().as_raw());
    let layout = bed.sandbox.layout();
    assert_eq!(layout.workspace, Path::new("/workspace"));
    assert_eq!(layout.sandbox_path(&skill.join("SKILL.md")), Some("/mnt/skills/pdf/SKILL.md".into()));
    // What the host adds to it later is there.
    fs::write(skill.join("late"), "later").unwrap();
    assert_eq!(bash(&bed, "cat /mnt/skills/pdf/late").await, "later");
    let shown = bed.sandbox.view("/mnt/skills/pdf/SKILL.md", None, 100, options()).await.unwrap();
    assert!(matches!(shown, View::Text { .. }));
}

#[tokio::test]
async fn folders_that_cannot_be_given_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "").unwrap();
    symlink(folder.path(), &link).unwrap();
    let missing = refused(ExecutionContext::new(folder.path().join("missing"))).await;
    assert_eq!(missing.kind(), SandboxErrorKind::NotFound, "{missing}");
    let no_folder = refused(ExecutionContext::new(&file)).await;
    assert_eq!(no_folder.kind(), SandboxErrorKind::WrongFileType, "{no_folder}");
    let linked = refused(ExecutionContext::new(&link)).await;
    assert_eq!(linked.kind(), SandboxErrorKind::PathNotAllowed, "{linked}");
    let skill = folder.path().join("skill");
    fs::create_dir_all(skill.join("work")).unwrap();
    for workspace in [skill.join("work"), skill.clone(), folder.path().to_owned()] {
        let mut context = ExecutionContext::new(&workspace);
        context.read_only.push(SharedFolder::new(&skill, "/mnt/skills/skill"));
        let error = refused(context).await;
        assert_eq!(error.kind(), SandboxErrorKind::PathNotAllowed, "{error}");
        assert!(error.to_string().contains("choose another workspace"), "{error}");
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Once more, for a host that is not root.

#[test]
#[expect(clippy::disallowed_methods, reason = "a test runs itself")]
fn the_same_holds_for_a_host_that_is_not_root() {
    use std::os::unix::process::CommandExt as _;

    const NOBODY: u32 = 65534;
    if !is_root() {
        return;
    }
    // Where that user can reach it.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("jail");
    // By another process: what this one has open for writing, or a child forked just then, cannot be run.
    let copied =
        std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    let outcome = std::process::Command::new(program)
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env_remove("TMPDIR")
        .output();
    let outcome = outcome.unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout);
    assert!(outcome.status.success(), "{said}{}", String::from_utf8_lossy(&outcome.stderr));
}

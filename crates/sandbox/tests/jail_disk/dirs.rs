//! What commands leave in their directories, and what they see of those of others.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use conjure_sandbox::{Command, CommandEnd, ExecutionContext, Executor};
use futures_util::future;

use crate::fixture::{Fixture, fixture, names, open};
use crate::support::{options, text};

#[tokio::test]
async fn the_host_can_read_and_delete_whatever_commands_create() {
    let fixture = fixture().await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "stays").unwrap();
    // A directory deeper than any path can tell, directories without permissions, links to elsewhere, odd names.
    let script = format!(
        "umask 077; mkdir -p a/b; echo deep > a/b/c; ln -s {0} a/out; ln -s {0}/file a/b/out; ln -s / root; \
         mkfifo pipe; mkdir $'new\\nline' ./-rf ' '; \
         perl -e 'for (1..3000) {{ mkdir \"d\"; chdir \"d\" or die }} open my $f, \">\", \"z\" or die'; \
         chmod 000 a/b/c a/b a d; chmod 000 .",
        outside.path().display()
    );
    fixture.bash(&script).await;
    fixture.sandbox.cleanup().await;
    let path = fixture.workspace.path().to_owned();
    assert_eq!(fs::metadata(&path).unwrap().uid(), rustix::process::geteuid().as_raw());
    for name in ["", "a", "a/b", "a/b/c"] {
        let mode = if name == "a/b/c" { 0o600 } else { 0o700 };
        fs::set_permissions(path.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(fs::read_to_string(path.join("a/b/c")).unwrap(), "deep\n");
    for name in ["a/b/c", "a/b", "a"] {
        fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let Fixture { sandbox, workspace, data, _dir } = fixture;
    drop((sandbox, workspace));
    assert_eq!(names(&data.path().join("workspaces")), [""; 0]);
    assert_eq!(names(outside.path()), ["file"]);
    assert_eq!(fs::read(outside.path().join("file")).unwrap(), b"stays");
}

#[tokio::test]
async fn two_simultaneous_sandboxes_are_isolated() {
    let (one, other) = future::join(fixture(), fixture()).await;
    for (fixture, name) in [(&one, "one"), (&other, "other")] {
        fixture.install_content(fixture.file(name, name.as_bytes())).await.unwrap();
        fixture.install_content(fixture.tree(name, &[("SKILL.md", name)])).await.unwrap();
        fixture.run(&format!("echo {name} > {name}; echo {name} > /tmp/{name}; seq 100000")).await;
    }
    // Two of one tenant, too.
    let workspace = one.data.workspace().unwrap();
    let third = open(&one.data, &ExecutionContext::new(workspace.path())).await.unwrap();
    let look =
        "ls /artifacts /mnt/skills /workspace /tmp | grep -v : | sort -u | tr -d '\\n'; ls /output | wc -l";
    assert_eq!(one.bash(look).await, "one1\n");
    assert_eq!(other.bash(look).await, "other1\n");
    assert_eq!(text(&third.run(Command::bash(look), options()).await.unwrap()), "0\n");
    let reach = format!("ls {} {}", other.data.path().display(), other.workspace.path().display());
    assert_ne!(one.run(&reach).await.end, CommandEnd::Exited(0));
}

/// The kernel tells of every mount from where it comes, which `doctor` says: of what the host gave, and of nothing else.
#[tokio::test]
async fn only_the_paths_of_bind_mounts_are_visible() {
    let fixture = fixture().await;
    let mounts = fixture.bash("cut -d' ' -f4,5 /proc/self/mountinfo").await;
    let path = fixture.data.path().file_name().unwrap().to_str().unwrap().to_owned();
    let own = format!("/{}/{path}/", fixture._dir.path().file_name().unwrap().to_str().unwrap());
    let listed: Vec<&str> = mounts
        .lines()
        .filter(|line| line.contains(&own))
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    assert!(listed.contains(&"/workspace"), "{mounts}");
    let expected = ["/artifacts", "/mnt/skills", "/output", "/workspace"];
    assert!(listed.iter().all(|target| expected.contains(target)), "{mounts}");
}

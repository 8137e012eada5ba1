//! What commands can open, where Landlock alone stands between them and the rest.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use conjure_guest::protocol::{CommandRules, ExecEnd, FrameKind, Hello, Reply, Request};

use super::{NOBODY, assert_confined, is_root, plain, rules};
use crate::client::{Guest, PLENTY};

fn confined() -> Guest {
    let mut guest = plain();
    assert_confined(&guest.handshake(rules()));
    guest
}

/// Puts a file there, of the guest's user.
fn put(guest: &Guest, name: &str, content: &str) -> String {
    let path = guest.path(name);
    std::fs::write(&path, content).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("permitted");
    if is_root() {
        std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn only_listed_paths_can_be_opened() {
    let mut guest = confined();
    let secret = put(&guest, "outside/secret", "a secret");
    let fixed = put(&guest, "fixed/text", "a text\n");
    let denied = |guest: &mut Guest, script: &str| {
        let outcome = guest.bash(&format!("{{ {script}; }} 2>&1; true"));
        assert!(outcome.text().contains("Permission denied"), "{script}: {}", outcome.text());
    };
    denied(&mut guest, &format!("cat {secret}"));
    denied(&mut guest, &format!("echo > {secret}"));
    denied(&mut guest, &format!("truncate -s 0 {secret}"));
    denied(&mut guest, &format!("rm {secret}"));
    denied(&mut guest, &format!("mv {secret} ."));
    // A link would give it rights that it does not have where it lies.
    let outcome = guest.bash(&format!("ln {secret} here"));
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("Invalid cross-device link"), "{outcome:?}");
    denied(&mut guest, &format!("touch {secret}.new"));
    denied(&mut guest, &format!("mkdir {secret}.new"));
    denied(&mut guest, &secret);
    // Through a link, too.
    denied(&mut guest, &format!("ln -s {secret} link && cat link"));
    assert_eq!(guest.bash(&format!("cat {fixed}")).text(), "a text\n");
    denied(&mut guest, &format!("echo more >> {fixed}"));
    denied(&mut guest, &format!("rm {fixed}"));
    denied(&mut guest, "echo > /dev/full");
    denied(&mut guest, "mkfifo /dev/shm/pipe");
    assert_eq!(std::fs::read_to_string(guest.path("outside/secret")).expect("it is there"), "a secret");
}

#[test]
fn the_workspace_is_fully_accessible() {
    let mut guest = confined();
    let script = r#"
        set -e
        mkdir -p a/b c
        echo one > a/b/file
        mv a/b/file c/
        ln c/file a/b/second
        ln -s ../c/file a/link
        test "$(cat a/link)" = one
        : > c/file
        mkfifo c/pipe
        printf '#!/bin/sh\necho ran\n' > run && chmod +x run
        ./run
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("c/socket")'
        mv c d
        rm -r a d
        ls / > /dev/null
        head -c 1 /dev/zero > /dev/null
        echo "$(ls)"
    "#;
    let outcome = guest.bash(script);
    assert_eq!((outcome.text().as_str(), outcome.end()), ("ran\nrun\n", ExecEnd::Exited(0)), "{outcome:?}");
}

#[test]
fn the_guest_itself_reaches_what_it_needs() {
    let mut guest = confined();
    let path = guest.work("sub/file").to_str().expect("UTF-8").to_owned();
    assert!(guest.write(&path, b"content").is_ok());
    assert_eq!(guest.read(&path).content, b"content");
    let replace = Request::Replace { path: path.clone(), old: "content".to_owned(), new: "other".to_owned() };
    assert!(matches!(guest.call(replace).result, Ok(Reply::Write { .. })));
    // Output that is kept in a file.
    let outcome = guest.bash("seq 100000");
    let kept = outcome.exec().stdout.spill_path.clone().expect("a file");
    assert!(kept.contains(".spill"));
    // Processes are found in `/proc`, to be killed.
    let channel = guest.open(crate::client::bash("setsid sleep 100 & echo begun; wait"), PLENTY, None);
    guest.send(FrameKind::Cancel, channel, &[]);
    assert_eq!(guest.finish(channel).end(), ExecEnd::Cancelled);
    guest.assert_nothing_left();
}

#[test]
fn sockets_of_the_host_without_a_file_cannot_be_reached() {
    let mut guest = plain();
    let welcome = guest.handshake(rules());
    if welcome.rules.landlock_abi < 6 {
        return;
    }
    let name = format!("conjure-test-{}", guest.pid());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _listener = UnixListener::bind_addr(&address).expect("a socket");
    let script = format!(
        "import socket\ntry:\n  socket.socket(socket.AF_UNIX).connect('\\0{name}')\nexcept OSError as e: print(e.errno)"
    );
    assert_eq!(guest.call(crate::client::exec(&["python3", "-c", &script])).text(), "1\n");
    // Between commands they work.
    let script = "import socket\na = socket.socket(socket.AF_UNIX)\na.bind('\\0own-%d' % id(a))\na.listen()\n\
                  socket.socket(socket.AF_UNIX).connect(a.getsockname())\nprint('connected')";
    assert_eq!(guest.call(crate::client::exec(&["python3", "-c", script])).text(), "connected\n");
}

#[test]
fn a_command_can_end_what_an_earlier_one_left_running() {
    let mut guest = confined();
    let pid = guest.bash("sleep 1000 > /dev/null 2>&1 & echo $!").text();
    let outcome = guest.bash(&format!("kill {pid}"));
    assert_eq!(outcome.end(), ExecEnd::Exited(0), "{outcome:?}");
    guest.assert_nothing_left();
}

#[test]
fn a_path_that_is_not_absolute_is_refused() {
    let mut rules: CommandRules = rules();
    let conjure_guest::protocol::FileRule::Only(files) = &mut rules.files else { unreachable!("as above") };
    files.write.push("work".to_owned());
    let mut guest = plain();
    let hello = Hello { rules, ..guest.hello() };
    guest.send_json(FrameKind::Hello, 0, &hello);
    assert!(guest.stderr_text().contains("`work`, which is not absolute"));
}

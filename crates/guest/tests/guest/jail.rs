//! The guest in a jail that it set up itself, for a host that is root and for one that is not.
//!
//! A test process that is root runs every case twice, the second time with a guest of the user "nobody".

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use conjure_guest::protocol::{
    Access, BecomeUser, Bind, BindContent, Confinement, ExecEnd, FrameKind, Hello, Identity, IfMissing,
    JailSpec, MountEntry, MountKind, OutputMount, OwnerMapping, PROTOCOL_VERSION, Root, SetupError,
    SetupStep, SymlinkPolicy, Welcome,
};

use crate::client::{Guest, PLENTY, bash, exec, wait_until};

/// A user that owns nothing.
const NOBODY: u32 = 65534;
/// Whom a root host's jail runs as.
const DEDICATED: u32 = 1_700_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    Root,
    Unprivileged,
}

/// The kinds of host that can be had here.
pub(crate) fn hosts() -> Vec<Host> {
    if !test_support::has_user_namespaces() {
        return Vec::new();
    }
    if rustix::process::geteuid().is_root() {
        vec![Host::Root, Host::Unprivileged]
    } else {
        vec![Host::Unprivileged]
    }
}

impl Host {
    /// Who owns what is the host's.
    fn uid(self) -> u32 {
        let own = rustix::process::geteuid().as_raw();
        if self == Self::Unprivileged && own == 0 { NOBODY } else { own }
    }

    /// A guest before the handshake. `before` is a wrapper that starts it.
    fn start(self, before: Option<&str>) -> Guest {
        let dir = tempfile::tempdir().expect("a directory");
        let mut program = Path::new(env!("CARGO_BIN_EXE_conjure-guest")).to_owned();
        for name in ["work", "fixed", "output", "outside"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        if self.uid() != rustix::process::geteuid().as_raw() {
            // Where another user can reach it.
            let copy = dir.path().join("guest");
            // By another process: a file that this one has open for writing, or a child forked just then, cannot be run.
            #[expect(clippy::disallowed_methods, reason = "tests copy the program")]
            let copied = Command::new("cp").arg(&program).arg(&copy).status().expect("cp runs");
            assert!(copied.success());
            program = copy;
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("ours");
            for name in ["work", "fixed", "output", "outside"] {
                chown(dir.path().join(name), Some(self.uid()), Some(self.uid())).expect("root may");
            }
        }
        #[expect(clippy::disallowed_methods, reason = "this is the program under test")]
        let mut command = match before {
            None => {
                let mut command = Command::new(program);
                command.arg("jail");
                command
            }
            Some(script) => {
                let mut command = Command::new("bash");
                command.args(["-c", script, "bash"]).arg(program).arg("jail");
                command
            }
        };
        if self.uid() != rustix::process::geteuid().as_raw() {
            command.uid(self.uid()).gid(self.uid());
        }
        Guest::spawn(command, dir)
    }

    fn spec(self, guest: &Guest) -> JailSpec {
        let (become_user, owner) = match self {
            Self::Root => (BecomeUser::Dedicated(DEDICATED), OwnerMapping::Mapped { uid: 0, gid: 0 }),
            Self::Unprivileged => (BecomeUser::Stay, OwnerMapping::Unchanged),
        };
        let host = |name: &str| guest.path(name).to_str().expect("UTF-8").to_owned();
        let own = |name: &str, access| {
            MountKind::Bind(Bind {
                source: host(name),
                access,
                content: BindContent::Programs,
                links: SymlinkPolicy::Refuse,
                missing: IfMissing::Fail,
                owner,
            })
        };
        let system = |source: &str, content| {
            MountKind::Bind(Bind {
                source: source.to_owned(),
                access: Access::ReadOnly,
                content,
                links: SymlinkPolicy::Follow,
                missing: IfMissing::Skip,
                owner: OwnerMapping::Unchanged,
            })
        };
        let memory = |mode, access| MountKind::Tmpfs { bytes: 16 << 20, inodes: 1000, mode, access };
        let mut places = vec![("/usr", system("/usr", BindContent::Programs))];
        for name in ["/bin", "/lib", "/lib64", "/sbin"] {
            if fs::symlink_metadata(name).is_ok_and(|it| it.is_symlink()) {
                places.push((name, MountKind::Link { target: format!("usr{name}") }));
            } else {
                places.push((name, system(name, BindContent::Programs)));
            }
        }
        let passwd = "sandbox:x:1000:1000::/home/sandbox:/bin/bash\n".to_owned();
        places.extend([
            ("/etc/passwd", MountKind::File { mode: 0o644, content: passwd }),
            ("/etc/ld.so.cache", system("/etc/ld.so.cache", BindContent::Data)),
            ("/etc/not-there", system("/etc/not-there", BindContent::Data)),
            ("/proc", MountKind::Proc),
            ("/proc/sys", MountKind::ReadOnlyOverlay),
            ("/proc/keys", MountKind::Masked),
            ("/proc/acpi", MountKind::Masked),
            ("/proc/not-there", MountKind::Masked),
            ("/run", memory(0o755, Access::ReadWrite)),
            ("/run/tmp", MountKind::Dir { mode: 0o1777 }),
            ("/run/home", MountKind::Dir { mode: 0o700 }),
            ("/tmp", MountKind::SubdirBind { path: "/run/tmp".to_owned() }),
            ("/home/sandbox", MountKind::SubdirBind { path: "/run/home".to_owned() }),
            ("/dev", memory(0o755, Access::ReadOnly)),
            ("/dev/null", system("/dev/null", BindContent::Device)),
            ("/dev/zero", system("/dev/zero", BindContent::Device)),
            ("/dev/urandom", system("/dev/urandom", BindContent::Device)),
            ("/dev/pts", MountKind::DevPts),
            ("/dev/ptmx", MountKind::Link { target: "pts/ptmx".to_owned() }),
            ("/dev/fd", MountKind::Link { target: "/proc/self/fd".to_owned() }),
            ("/workspace", own("work", Access::ReadWrite)),
            ("/mnt/fixed", own("fixed", Access::ReadOnly)),
        ]);
        JailSpec {
            identity: Identity { become_user, uid: 1000, gid: 1000 },
            hostname: "jail".to_owned(),
            mounts: places
                .into_iter()
                .map(|(path, is)| MountEntry { path: path.to_owned(), kind: is })
                .collect(),
            output: Some(OutputMount { source: host("output"), path: "/mnt/output".to_owned(), owner }),
            cgroups: Vec::new(),
        }
    }

    fn hello(self, guest: &Guest) -> Hello {
        let (name, value) = guest.mark.split_once('=').expect("a variable");
        Hello {
            roots: vec![
                Root { path: "/workspace".to_owned(), access: Access::ReadWrite },
                Root { path: "/mnt/fixed".to_owned(), access: Access::ReadOnly },
            ],
            workdir: "/workspace".to_owned(),
            env: BTreeMap::from([
                ("PATH".to_owned(), "/usr/bin:/bin:/usr/sbin:/sbin".to_owned()),
                ("HOME".to_owned(), "/home/sandbox".to_owned()),
                (name.to_owned(), value.to_owned()),
            ]),
            spill_dir: Some("/mnt/output".to_owned()),
            jail: Some(self.spec(guest)),
            ..Hello::default()
        }
    }

    /// A guest in its jail, after the handshake.
    pub(crate) fn jailed(self) -> Guest {
        self.jailed_by(None)
    }

    /// The same, started by `before` where that is given.
    pub(crate) fn jailed_by(self, before: Option<&str>) -> Guest {
        let mut guest = self.start(before);
        let hello = self.hello(&guest);
        guest.send_json(FrameKind::Hello, 0, &hello);
        let frame = guest.next_of(0);
        if frame.kind == FrameKind::Done {
            panic!("no jail for {self:?}: {}", frame.json::<SetupError>().expect("a failure"));
        }
        let welcome: Welcome = frame.json().expect("a welcome");
        let confinement = Some(Confinement::default());
        assert_eq!((welcome.version, welcome.pid, welcome.confinement), (PROTOCOL_VERSION, 1, confinement));
        guest
    }

    /// Why there is no jail, for a host that starts it in a certain way or asks for something else.
    fn failure(self, before: Option<&str>, change: impl FnOnce(&Guest, &mut JailSpec)) -> SetupError {
        let mut guest = self.start(before);
        let mut hello = self.hello(&guest);
        change(&guest, hello.jail.as_mut().expect("asked for"));
        guest.send_json(FrameKind::Hello, 0, &hello);
        let frame = guest.next_of(0);
        assert_eq!(frame.kind, FrameKind::Done, "{self:?}");
        let failure = frame.json().expect("a failure");
        assert_eq!(guest.wait().code(), Some(3), "{failure:?}");
        failure
    }
}

/// What a script writes; it must end well.
#[track_caller]
pub(crate) fn output_of(guest: &mut Guest, script: &str) -> String {
    let outcome = guest.bash(script);
    let text = outcome.text();
    assert_eq!(
        outcome.end(),
        ExecEnd::Exited(0),
        "{script}: {text}{}",
        String::from_utf8_lossy(&outcome.stderr)
    );
    text
}

#[test]
fn commands_are_unprivileged_in_their_own_namespaces() {
    for host in hosts() {
        let mut guest = host.jailed();
        assert_eq!(
            output_of(&mut guest, "id -u; id -g; id -un; hostname; pwd"),
            "1000\n1000\nsandbox\njail\n/workspace\n"
        );
        let status = output_of(&mut guest, "cat /proc/self/status");
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.trim_start_matches(':').split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(line(set), ["0000000000000000"], "{set}");
        }
        assert_eq!((line("NoNewPrivs"), line("Umask")), (vec!["1".to_owned()], vec!["0022".to_owned()]));
        for namespace in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
            let own = fs::read_link(format!("/proc/self/ns/{namespace}")).expect("a link");
            let theirs = output_of(&mut guest, &format!("readlink /proc/self/ns/{namespace}"));
            assert_ne!(theirs.trim(), own.to_str().expect("UTF-8"));
        }
        // The guest, its shims, the shell and its child: nobody else is to be seen.
        let names = output_of(&mut guest, "cat /proc/[0-9]*/comm 2>/dev/null || true");
        assert!(
            names.lines().all(|name| ["conjure-guest", "guest", "bash", "cat"].contains(&name)),
            "{names}"
        );
        assert_eq!(output_of(&mut guest, "tail -n +3 /proc/net/dev | cut -d: -f1"), "    lo\n");
        // Nobody listens there: refused, and not unreachable.
        let refused = output_of(&mut guest, "exec 2>&1; (: </dev/tcp/127.0.0.1/9) || true");
        assert!(refused.contains("refused"), "{refused}");
        assert_eq!(guest.close().code(), Some(0));
    }
}

#[test]
fn only_specified_host_paths_are_visible() {
    for host in hosts() {
        let mut guest = host.jailed();
        let mut expected =
            vec!["bin", "dev", "etc", "home", "lib", "mnt", "proc", "run", "sbin", "tmp", "usr", "workspace"];
        if Path::new("/lib64").exists() {
            expected.push("lib64");
        }
        expected.sort_unstable();
        assert_eq!(output_of(&mut guest, "ls /").split_whitespace().collect::<Vec<_>>(), expected);
        assert_eq!(output_of(&mut guest, "ls /etc"), "ld.so.cache\npasswd\n");
        assert_eq!(output_of(&mut guest, "ls /mnt"), "fixed\noutput\n");
        let mounts = output_of(&mut guest, "cut -d' ' -f5 /proc/self/mountinfo");
        let host_path = guest.path("").to_str().expect("UTF-8").to_owned();
        assert!(!mounts.contains(&host_path) && !mounts.contains("\n/sys"), "{mounts}");
        // None that would pass anything on to the host, or take anything from it.
        assert_eq!(output_of(&mut guest, "grep -cE 'shared:|master:' /proc/self/mountinfo || true"), "0\n");
        for path in
            ["/x", "/usr/x", "/etc/x", "/dev/x", "/mnt/x", "/mnt/fixed/x", "/mnt/output/x", "/proc/sys/x"]
        {
            let outcome = guest.bash(&format!("echo x > {path}"));
            assert_ne!(outcome.end(), ExecEnd::Exited(0), "{path} was written");
        }
        output_of(
            &mut guest,
            "for it in /tmp /home/sandbox /run /workspace; do echo x > $it/x; done; test -O /tmp/x",
        );
        assert_eq!(output_of(&mut guest, "cat /proc/keys | wc -c; head -c 3 /dev/zero | wc -c"), "0\n3\n");
        // Programs that change the user do not, and devices of one's own cannot be made.
        assert_eq!(
            output_of(&mut guest, "grep -c nosuid /proc/self/mountinfo"),
            output_of(&mut guest, "grep -c . /proc/self/mountinfo")
        );
        assert_ne!(guest.bash("mknod /tmp/null c 1 3").end(), ExecEnd::Exited(0));
    }
}

#[test]
fn files_of_commands_belong_to_the_host_user() {
    for host in hosts() {
        let mut guest = host.jailed();
        fs::write(guest.work("given"), "from the host").expect("ours");
        chown(guest.work("given"), Some(host.uid()), Some(host.uid())).expect("ours");
        assert_eq!(
            output_of(&mut guest, "stat -c %u:%g given; cat given; echo more >> given; ls -ld . | wc -l"),
            "1000:1000\nfrom the host1\n"
        );
        output_of(&mut guest, "mkdir -m 700 deep && echo x > deep/made && chmod 600 deep/made");
        assert!(guest.write("written", b"by the guest").is_ok());
        for name in ["given", "deep", "deep/made", "written"] {
            let found = fs::metadata(guest.work(name)).expect("it is there");
            assert_eq!((found.uid(), found.gid()), (host.uid(), host.uid()), "{name} of {host:?}");
        }
        let spilled = guest.bash("seq 100000");
        let path = spilled.exec().stdout.spill_path.clone().expect("a file");
        assert_eq!(output_of(&mut guest, &format!("tail -n 1 {path}")), "100000\n");
        assert_ne!(guest.bash(&format!("rm -f {path} || echo x >> {path}")).end(), ExecEnd::Exited(0));
        let kept = guest.path("output").join(path.rsplit_once('/').expect("a path").1);
        assert_eq!(fs::metadata(kept).expect("it is there").uid(), host.uid());
        assert!(guest.read("/mnt/fixed/../../etc/passwd").result.is_err());
    }
}

#[test]
fn a_command_cannot_end_its_sandbox() {
    for host in hosts() {
        let mut guest = host.jailed();
        output_of(&mut guest, "for it in TERM KILL STOP INT HUP CHLD; do kill -$it 1; done; true");
        assert_eq!(output_of(&mut guest, "echo alive"), "alive\n");
        for path in ["mem", "environ", "fd", "exe", "root", "cwd", "maps"] {
            let outcome = guest.bash(&format!("cat /proc/1/{path} || ls /proc/1/{path}/"));
            assert_ne!(outcome.end(), ExecEnd::Exited(0), "/proc/1/{path} can be read");
        }
    }
}

#[test]
fn no_descriptor_and_no_secret_of_the_host_gets_in() {
    for host in hosts() {
        // Nine is left open by a careless host.
        let mut guest = host.start(Some("exec 9</etc/hostname; exec \"$@\""));
        let mut hello = host.hello(&guest);
        hello.env.insert("SECRET".to_owned(), "in-the-handshake".to_owned());
        guest.send_json(FrameKind::Hello, 0, &hello);
        assert_eq!(guest.next_of(0).kind, FrameKind::Welcome);
        let fds = output_of(
            &mut guest,
            "readlink /proc/self/fd/* | grep -v -e '^pipe:' -e '^/dev/null' -e '^/proc/' || true",
        );
        assert_eq!(fds, "");
        assert_eq!(output_of(&mut guest, "echo $SECRET"), "in-the-handshake\n");
        for pid in process_and_descendants(guest.pid()) {
            for name in ["cmdline", "environ"] {
                let text = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                assert!(!text.contains("in-the-handshake"), "{name} of {pid} in {host:?}");
            }
        }
        // Outside of the jail, the waiting process holds nothing and may do nothing, a moment after it has started the other.
        let open = format!("/proc/{}/fd", guest.pid());
        wait_until("it waits", || fs::read_dir(&open).map(Iterator::count).unwrap_or(0) == 0);
        let status = fs::read_to_string(format!("/proc/{}/status", guest.pid())).expect("it waits");
        let effective = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).expect("a line");
        assert_eq!(effective.trim(), "0000000000000000");
        let uid = if host == Host::Root { DEDICATED } else { host.uid() };
        let uids = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}");
        assert!(status.contains(&uids), "{status}");
    }
}

/// This process and all below it.
fn process_and_descendants(top: u32) -> Vec<u32> {
    let mut all = vec![top];
    let mut next = 0;
    while let Some(pid) = all.get(next).copied() {
        next += 1;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    all
}

/// Starts what is hard to end, and says which processes there are.
fn busy(host: Host) -> (Guest, Vec<u32>) {
    let mut guest = host.jailed();
    output_of(&mut guest, "setsid sleep 1000 >/dev/null 2>&1 & (nohup sleep 1000 >/dev/null 2>&1 &)");
    guest.open(bash("trap '' TERM HUP INT; setsid sleep 1000 & touch ready; sleep 1000"), PLENTY, None);
    let ready = guest.work("ready");
    wait_until("all run", || ready.exists());
    let family = process_and_descendants(guest.pid());
    assert!(family.len() >= 6, "{family:?}");
    (guest, family)
}

#[track_caller]
fn assert_gone(what: &str, family: &[u32]) {
    wait_until(what, || family.iter().all(|pid| !lives(*pid)));
}

fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process id");
    rustix::process::kill_process(pid, signal).expect("it runs");
}

#[test]
fn nothing_outlives_the_parent_process() {
    for host in hosts() {
        let (mut guest, family) = busy(host);
        guest.kill();
        assert_gone("the jail is gone with its parent process", &family);
    }
}

#[test]
fn nothing_outlives_process_1() {
    for host in hosts() {
        let (mut guest, family) = busy(host);
        signal(family[1], rustix::process::Signal::KILL);
        // It ends in the same way as process 1.
        assert_eq!(guest.wait().code(), None);
        assert!(
            family.iter().all(|pid| !lives(*pid)),
            "the kernel kills all of a jail before its process 1 is gone"
        );
    }
}

#[test]
fn a_terminated_jail_is_gone_when_its_parent_exits() {
    for host in hosts() {
        let (mut guest, family) = busy(host);
        signal(guest.pid(), rustix::process::Signal::TERM);
        assert_eq!(guest.wait().code(), None);
        assert!(family.iter().all(|pid| !lives(*pid)));
    }
}

#[test]
fn nothing_outlives_the_stream() {
    for host in hosts() {
        let (mut guest, family) = busy(host);
        assert_eq!(guest.close().code(), Some(0));
        assert!(family.iter().all(|pid| !lives(*pid)), "all is dead before the guest is");
    }
}

#[test]
fn a_host_that_closes_the_stream_before_hello_leaves_nothing() {
    for host in hosts() {
        let mut guest = host.start(None);
        assert_eq!(guest.close().code(), Some(0));
    }
}

#[test]
fn set_up_errors_name_the_cause() {
    for host in hosts() {
        let missing = host.failure(None, |guest, spec| {
            fs::remove_dir(guest.path("fixed")).expect("ours");
            spec.hostname = "other".to_owned();
        });
        assert_eq!((missing.step, missing.errno), (SetupStep::HostDirs, 2), "{missing}");
        assert!(missing.to_string().contains("/fixed` for the jail"), "{missing}");

        let link = host.failure(None, |guest, _| {
            fs::remove_dir(guest.path("fixed")).expect("ours");
            symlink("/etc", guest.path("fixed")).expect("ours");
        });
        assert_eq!(link.step, SetupStep::HostDirs);
        assert!(link.to_string().contains("symbolic link"), "{link}");

        for path in ["relative", "/a/../b", "/", "//a", "/a/."] {
            let failure = host.failure(None, |_, spec| path.clone_into(&mut spec.mounts[0].path));
            assert_eq!(failure.step, SetupStep::Specification, "{path}: {failure}");
        }
        let group =
            host.failure(None, |_, spec| spec.cgroups.push("/sys/fs/cgroup/no/such/group".to_owned()));
        assert_eq!((group.step, group.errno), (SetupStep::ControlGroups, 2), "{group}");
        let name = host.failure(None, |_, spec| spec.hostname = "x".repeat(1000));
        assert_eq!(name.step, SetupStep::Root, "{name}");
        let link = host.failure(None, |_, spec| {
            let is = MountKind::Link { target: "/etc".to_owned() };
            spec.mounts.push(MountEntry { path: "/usr/new".to_owned(), kind: is });
        });
        assert_eq!((link.step, link.errno), (SetupStep::Root, 30), "{link}");
    }
}

#[test]
fn links_in_the_jail_stay_in_the_jail() {
    for host in hosts() {
        let mut guest = host.start(None);
        let mut hello = host.hello(&guest);
        let outside = guest.path("outside").to_str().expect("UTF-8").to_owned();
        let spec = hello.jail.as_mut().expect("asked for");
        let mut add = |path: &str, is| spec.mounts.push(MountEntry { path: path.to_owned(), kind: is });
        // What the host has there is not what lies there in the jail.
        add("/way", MountKind::Link { target: outside.clone() });
        add(&outside, MountKind::Dir { mode: 0o755 });
        add("/way/file", MountKind::File { mode: 0o644, content: "inside".to_owned() });
        guest.send_json(FrameKind::Hello, 0, &hello);
        assert_eq!(guest.next_of(0).kind, FrameKind::Welcome);
        assert_eq!(output_of(&mut guest, "cat /way/file"), "inside");
        assert_eq!(fs::read_dir(outside).expect("ours").count(), 0);
    }
}

#[test]
fn a_machine_without_user_namespaces_is_reported() {
    if !test_support::has_user_namespaces() {
        return;
    }
    // A namespace whose own limit is none stands for such a machine.
    let without = "exec unshare --user --map-root-user bash -c \
                   'echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"' bash \"$@\"";
    let failure = Host::Unprivileged.failure(Some(without), |_, _| {});
    // No space left on device: that is how the kernel says it.
    assert_eq!((failure.step, failure.errno), (SetupStep::Namespaces, 28), "{failure}");
}

#[test]
fn a_machine_with_a_masked_proc_is_reported() {
    if !test_support::has_user_namespaces() {
        return;
    }
    // As containers have it.
    let covered = "exec unshare --user --map-root-user --mount bash -c \
                   'mount -t tmpfs none /proc/acpi 2>/dev/null || mount -t tmpfs none /proc/sys && exec \"$@\"' \
                   bash \"$@\"";
    let failure = Host::Unprivileged.failure(Some(covered), |_, _| {});
    assert_eq!((failure.step, failure.errno), (SetupStep::Proc, 1), "{failure}");
}

#[test]
fn only_a_guest_started_for_a_jail_accepts_one() {
    let mut guest = Guest::start_without_handshake();
    let hello = Hello { jail: Some(Host::Unprivileged.spec(&guest)), ..guest.hello() };
    guest.send_json(FrameKind::Hello, 0, &hello);
    assert_eq!(guest.wait().code(), Some(2));

    let mut guest = Host::Unprivileged.start(None);
    let hello = Hello { jail: None, ..guest.hello() };
    guest.send_json(FrameKind::Hello, 0, &hello);
    assert_eq!(guest.wait().code(), Some(2));

    let mut guest = Host::Unprivileged.start(None);
    let hello = Hello { version: 77, ..guest.hello() };
    guest.send_json(FrameKind::Hello, 0, &hello);
    let welcome: Welcome = guest.next_of(0).json().expect("a welcome");
    assert_eq!(welcome.version, PROTOCOL_VERSION);
    assert_eq!(guest.wait().code(), Some(2));
}

#[test]
fn a_panic_of_a_command_is_not_the_jails() {
    for host in hosts() {
        let mut guest = host.jailed();
        assert_eq!(guest.call(exec(&["bash", "-c", "kill -SEGV $$"])).end(), ExecEnd::Signaled(11));
        assert_eq!(output_of(&mut guest, "echo alive"), "alive\n");
    }
}

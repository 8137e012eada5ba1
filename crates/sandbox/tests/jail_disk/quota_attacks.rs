//! Attacks on the quota: by what takes space without writing, by what hides it, and on who measures.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use conjure_sandbox::{CommandEnd, CommandOutcome, ExecutionContext, Limits};

use crate::fixture::{Fixture, MIB, fixture_with};
use crate::support::text;

fn small(context: &mut ExecutionContext) {
    context.limits = Limits::default().with_disk(8 * MIB).unwrap().with_inodes(400).unwrap();
}

/// Runs a program of Python's, which begins with what most attacks need.
async fn python(fixture: &Fixture, program: &str) -> CommandOutcome {
    let prelude = "import array, ctypes, fcntl, mmap, os, signal, socket, struct, sys, time\n\
                   def fill(fd, mebibytes):\n\
                   \x20   for _ in range(mebibytes * 16): os.write(fd, bytes(65536))\n";
    fixture.run(&format!("exec /usr/bin/python3 - <<'END'\n{prelude}{program}\nEND")).await
}

/// The bytes that files directly in a directory take on the disk.
fn used_bytes(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
}

/// The attack is ended for what it takes: all that would have it continue for ever is in vain.
#[track_caller]
fn assert_ended_by_quota(outcome: &CommandOutcome) {
    assert!(matches!(outcome.end, CommandEnd::QuotaExceeded(_)), "{:?}: {}", outcome.end, text(outcome));
}

/// `fallocate` takes any number of bytes at once, and beyond the end of a file whatever the limit of its size is.
#[tokio::test]
async fn space_cannot_be_allocated_without_being_counted() {
    let fixture = fixture_with(small).await;
    for options in ["-l 1M", "-n -l 1G", "-z -l 1M"] {
        let script = format!("fallocate {options} big && echo taken");
        let outcome = fixture.run(&script).await;
        assert!(text(&outcome).contains("supported"), "{options}: {}", text(&outcome));
    }
    // The C library writes instead, and holes take no space.
    let output = fixture
        .bash("fallocate -x -l 1M big && stat -c %s big && fallocate -p -o 0 -l 64K big && echo less")
        .await;
    assert_eq!(output, "1048576\nless\n");
    let outcome = python(
        &fixture,
        "fd = os.open('more', os.O_RDWR | os.O_CREAT)\n\
         try: fcntl.ioctl(fd, 0x4030582a, struct.pack('hhqqiI4i', 0, 0, 0, 1 << 30, 0, 0, 0, 0, 0, 0))\n\
         except OSError as error: print(error.errno)\n\
         print(os.fstat(fd).st_blocks)",
    )
    .await;
    assert_eq!(text(&outcome), "95\n0\n", "{outcome:?}");
}

/// The measuring process belongs to the user of the commands.
#[tokio::test]
async fn the_quota_check_cannot_be_stopped() {
    for signal in ["SIGSTOP", "SIGKILL"] {
        let fixture = fixture_with(small).await;
        let outcome = python(
            &fixture,
            &format!(
                "own = os.fork()\n\
                 next = os.getpid() + 1\n\
                 while own == 0:\n\
                 \x20   # Numbers are given in their order.\n\
                 \x20   for pid in range(next, next + 4):\n\
                 \x20       try: os.kill(pid, signal.{signal})\n\
                 \x20       except OSError: continue\n\
                 \x20       if signal.{signal} == signal.SIGKILL: next = pid + 1\n\
                 time.sleep(0.2)\n\
                 for number in range(256):\n\
                 \x20   with open(f'big{{number}}', 'wb') as file: fill(file.fileno(), 1)\n\
                 time.sleep(30)"
            ),
        )
        .await;
        assert_ended_by_quota(&outcome);
        let used_bytes = used_bytes(fixture.workspace.path());
        assert!(used_bytes < 128 * MIB, "{signal}: {used_bytes} bytes");
    }
}

/// Each hides 4 MiB at a time, until it has hidden far more than it may take.
#[tokio::test]
async fn unlinked_files_are_counted_wherever_they_are_open() {
    let nameless = "def nameless(name):\n\
                    \x20   fd = os.open(name, os.O_RDWR | os.O_CREAT)\n\
                    \x20   os.unlink(name)\n\
                    \x20   fill(fd, 4)\n\
                    \x20   return fd\n";
    let attacks = [
        (
            "in a process that lets nobody look",
            "ctypes.CDLL(None).prctl(4, 0)\nheld = []\nfor i in range(64): held.append(nameless(f'a{i}'))",
        ),
        (
            "in a mapping whose descriptor is closed",
            "held = []\n\
             for i in range(64):\n\
             \x20   fd = nameless(f'a{i}')\n\
             \x20   held.append(mmap.mmap(fd, 4096))\n\
             \x20   os.close(fd)\n\
             \x20   time.sleep(0.001)",
        ),
        (
            "on its way in a socket",
            "here, there = socket.socketpair()\n\
             for i in range(64):\n\
             \x20   fd = nameless(f'a{i}')\n\
             \x20   here.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])\n\
             \x20   os.close(fd)",
        ),
        (
            "in the program that runs",
            "for i in range(40):\n\
             \x20   os.system(f'cp /usr/bin/python3 p{i}; head -c 4M /dev/zero >> p{i}; chmod +x p{i}; exec 0<>/dev/null; ./p{i} -c \"import time; time.sleep(999)\" &')\n\
             \x20   time.sleep(0.05)\n\
             \x20   os.unlink(f'p{i}')",
        ),
    ];
    for (name, attack) in attacks {
        let fixture = fixture_with(small).await;
        let outcome = python(&fixture, &format!("{nameless}{attack}\nprint('held')\ntime.sleep(30)")).await;
        assert!(matches!(outcome.end, CommandEnd::QuotaExceeded(_)), "{name}: {outcome:?}");
        assert!(!text(&outcome).contains("held"), "{name}: all of it was hidden before it was noticed");
        // It went with its last user.
        fixture.bash("true").await;
    }
}

/// The more files there are, the longer it takes to count them, in which more can be made.
#[tokio::test]
async fn files_are_created_no_faster_than_they_are_counted() {
    let fixture = fixture_with(|context| {
        context.limits = Limits::default().with_disk(64 * MIB).unwrap().with_inodes(20_000).unwrap();
    })
    .await;
    let outcome = python(
        &fixture,
        "def make(names):\n\
         \x20   for name in names: os.close(os.open(str(name), os.O_CREAT | os.O_WRONLY))\n\
         make(range(18000))\n\
         # What is near its quota is counted often, until there is no more time for that.\n\
         until = time.monotonic() + 2\n\
         while time.monotonic() < until:\n\
         \x20   make(range(18000, 19000))\n\
         \x20   for name in range(18000, 19000): os.unlink(str(name))\n\
         first = 30000\n\
         for writer in range(2):\n\
         \x20   if os.fork() == 0: break\n\
         \x20   first += 30000\n\
         make(range(first, first + 30000))\n\
         time.sleep(30)",
    )
    .await;
    let CommandEnd::QuotaExceeded(excess) = outcome.end else { panic!("{outcome:?}") };
    // A sixteenth is tolerated, and what is made between two looks comes on top: more on a busy machine, but never all of the 109,000.
    assert!(excess.used.inodes < 60_000, "{excess:?}");
}

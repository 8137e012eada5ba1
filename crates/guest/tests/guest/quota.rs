//! A directory with a disk quota.

use std::fs;

use conjure_guest::protocol::{
    DiskUsage, ErrorCode, ExecEnd, FrameKind, GuestError, Quota, QuotaBasis, QuotaExcess, Reply, Request,
};

use crate::client::{Guest, Outcome, PLENTY, bash, wait_until};

const MIB: u64 = 1 << 20;

/// The quota of most tests: 8 MiB and 200 files and directories.
const ALLOWED: DiskUsage = DiskUsage { bytes: 8 * MIB, inodes: 200 };

fn guest() -> Guest {
    Guest::start_with_quota(ALLOWED, |_| {})
}

#[track_caller]
fn excess(outcome: &Outcome) -> QuotaExcess {
    match outcome.end() {
        ExecEnd::QuotaExceeded(excess) => {
            assert_eq!(excess.allowed, ALLOWED);
            assert!(!excess.used.is_within(&ALLOWED), "{excess:?}");
            excess
        }
        other => panic!("it ended otherwise: {other:?}: {}", outcome.text()),
    }
}

/// Removes files, and waits until programs may write again.
fn recover(guest: &mut Guest, script: &str) {
    assert_eq!(guest.bash(script).end(), ExecEnd::Exited(0));
    wait_until("the directory is measured to take less", || {
        guest.bash("trap '' XFSZ; echo x > probe && rm probe").end() == ExecEnd::Exited(0)
    });
}

#[track_caller]
fn no_space(result: Result<Reply, GuestError>) {
    let error = result.expect_err("there is no room");
    assert_eq!(error.code, ErrorCode::NoSpace);
    assert!(error.message.contains("remove files that are not needed"), "{}", error.message);
}

#[test]
fn a_program_above_the_quota_is_ended_and_may_remove_files() {
    let mut guest = guest();
    // Nothing in it ever ends by itself.
    let outcome = guest.bash("echo begun; cat /dev/zero > big");
    assert!(excess(&outcome).used.bytes > ALLOWED.bytes);
    assert_eq!(outcome.text(), "begun\n");
    guest.assert_nothing_left();
    // Nothing can be written, and what is there can be seen and removed.
    let outcome = guest.bash("trap '' XFSZ; echo x > new || wc -c < new");
    assert_eq!(outcome.text(), "0\n", "{}", String::from_utf8_lossy(&outcome.stderr));
    no_space(guest.write("other", b"x"));
    recover(&mut guest, "rm big new");
    let again = guest.bash("head -c 1000000 /dev/zero > small && echo written");
    assert_eq!(again.text(), "written\n");
    assert!(guest.write("other", b"x").is_ok());
}

#[test]
fn many_small_files_exceed_the_quota() {
    let mut guest = guest();
    let outcome = guest.bash("for ((i = 0; ; i++)); do mkdir -p d$i/e; done");
    assert!(excess(&outcome).used.inodes > ALLOWED.inodes);
    guest.assert_nothing_left();
    recover(&mut guest, "rm -r d*");
}

/// Also of programs that left the session and whose call is over.
#[test]
fn all_running_programs_are_ended() {
    let mut guest = guest();
    let waiting = guest.open(bash("exec sleep 1000"), PLENTY, None);
    let left = guest.bash("setsid bash -c 'until [ -e go ]; do sleep 0.01; done; exec cat /dev/zero > big' > /dev/null 2>&1 & echo left");
    assert_eq!(left.text(), "left\n");
    // Not by a program, which would be ended, too, if it were slow to end by itself.
    fs::write(guest.work("go"), "").expect("written");
    let outcome = guest.finish(waiting);
    excess(&outcome);
    guest.assert_nothing_left();
}

/// What takes no room on the disk does not count: holes, and further names.
#[test]
fn holes_and_hard_links_do_not_count() {
    let mut guest = guest();
    let outcome = guest.bash(
        "truncate -s 1T sparse && head -c 5000000 /dev/zero > file && mkdir links &&
         for i in {1..150}; do ln file links/$i; done && mkdir more && for i in {1..150}; do ln file more/$i; done &&
         echo done",
    );
    assert_eq!((outcome.end(), outcome.text().as_str()), (ExecEnd::Exited(0), "done\n"));
    // It was measured meanwhile or will be now, and nothing is ended.
    let outcome = guest.bash("sleep 0.5; head -c 1000000 /dev/zero >> file; echo on");
    assert_eq!((outcome.end(), outcome.text().as_str()), (ExecEnd::Exited(0), "on\n"));
}

#[test]
fn a_removed_file_counts_as_long_as_it_is_open() {
    let mut guest = guest();
    let outcome = guest.bash("exec 3> file; rm file; exec cat /dev/zero >&3");
    excess(&outcome);
    guest.assert_nothing_left();
    assert!(fs::read_dir(guest.path("work")).expect("a directory").count() <= 1, "the directory is empty");
    // It went with its last user.
    recover(&mut guest, "true");
}

/// The kernel does not tell where a file is whose path is longer than 4096 bytes.
#[test]
fn a_removed_file_counts_also_far_down() {
    let mut guest = guest();
    let outcome = guest.bash(
        "cat > hold.py << 'end'
import os, time
for _ in range(22):
    os.mkdir('d' * 200)
    os.chdir('d' * 200)
for _ in range(40):
    file = os.open('file', os.O_CREAT | os.O_WRONLY)
    os.unlink('file')
    os.write(file, bytes(1 << 20))
time.sleep(10)
end
exec python3 hold.py",
    );
    excess(&outcome);
}

/// Not even from a directory that its owner may not list.
#[test]
fn nothing_is_hidden() {
    let mut guest = guest();
    let outcome = guest.bash(
        "mkdir -p a/b && cd a/b && for i in {1..600}; do mkdir d && cd d; done && exec 3> big && chmod 300 . &&
         cd / && chmod 0 \"$OLDPWD\" 2> /dev/null; exec cat /dev/zero >&3",
    );
    // The 600 directories are too much by themselves.
    excess(&outcome);
    recover(&mut guest, "chmod -R u+rwx a; rm -r a");
    let outcome = guest.bash("mkdir a && exec 3> a/big && chmod 300 a && exec cat /dev/zero >&3");
    excess(&outcome);
    // Its permissions are what they were.
    let outcome = guest.bash("stat -c %a a");
    assert_eq!(outcome.text(), "300\n");
}

#[test]
fn file_operations_respect_the_quota() {
    let mut guest = guest();
    let part = vec![b'x'; 3 * MIB as usize];
    assert!(guest.write("kept", &part).is_ok());
    assert!(guest.write("kept", &part[1..]).is_ok());
    no_space(guest.write("more", &[part.as_slice(), &part].concat()));
    assert!(!guest.work("more").exists());
    // The file that it would replace takes its room until then.
    no_space(guest.write("kept", &[part.as_slice(), &part].concat()));
    assert_eq!(fs::metadata(guest.work("kept")).expect("there").len(), 3 * MIB - 1);
    assert!(guest.write("text", b"one two").is_ok());
    // Nobody knows what the replaced file took; it is measured before anything is refused.
    assert!(guest.write("fill", &vec![b'y'; 4_800_000]).is_ok());
    let replace =
        Request::Replace { path: "text".to_owned(), old: "one".to_owned(), new: "y".repeat(500_000) };
    no_space(guest.call(replace).result);
    assert_eq!(fs::read(guest.work("text")).expect("there"), b"one two");
    // Two hundred directories for one file.
    no_space(guest.write(&format!("{}/file", vec!["d"; 250].join("/")), b"x"));
    assert!(!guest.work("d").exists());
    assert!(guest.write(&format!("{}/file", vec!["d"; 50].join("/")), b"x").is_ok());
    // What lies beneath no quota is free.
    let outcome = guest.bash("echo on");
    assert_eq!(outcome.end(), ExecEnd::Exited(0));
}

/// Whatever was measured while it was there: nobody is refused or ended for it.
#[test]
fn refused_writes_use_no_space() {
    let mut guest = guest();
    let waiting = guest.open(bash("exec sleep 1000"), PLENTY, None);
    let deep = format!("{}/file", vec!["d"; 250].join("/"));
    let large = vec![b'x'; 9 * MIB as usize];
    for round in 0..12 {
        no_space(guest.write(&deep, b"x"));
        no_space(guest.write("large", &large));
        let written = guest.write(&format!("{}/file{round}", vec!["e"; 120].join("/")), b"x");
        assert!(written.is_ok(), "round {round}: {written:?}");
    }
    guest.send(FrameKind::Cancel, waiting, b"");
    assert_eq!(guest.finish(waiting).end(), ExecEnd::Cancelled);
}

/// A session may continue in a directory above its quota. Only its writes are refused.
#[test]
fn existing_usage_ends_no_program() {
    let mut guest = Guest::start_with_quota(ALLOWED, |guest| {
        fs::write(guest.work("big"), vec![1; 20 * MIB as usize]).expect("written");
    });
    let outcome = guest.bash("sleep 0.3; ls");
    assert_eq!((outcome.end(), outcome.text().as_str()), (ExecEnd::Exited(0), "big\n"));
    wait_until("it is measured", || {
        guest.write("new", b"x").is_err_and(|error| error.code == ErrorCode::NoSpace)
    });
    let outcome = guest.bash("trap '' XFSZ; echo x > new; wc -c < new; rm new");
    assert_eq!(outcome.text(), "0\n");
    recover(&mut guest, "rm big");
}

/// Who kills whatever measures is ended, too.
#[test]
fn measuring_cannot_be_prevented() {
    let mut guest = guest();
    let pid = guest.pid();
    let outcome = guest.bash(&format!(
        "cat /dev/zero > big & while :; do for child in $(< /proc/{pid}/task/{pid}/children); do
           [ $child = $PPID ] || kill -9 $child; done; done 2> /dev/null"
    ));
    assert!(matches!(outcome.end(), ExecEnd::QuotaExceeded(_)), "{:?}", outcome.end());
    guest.assert_nothing_left();
}

#[test]
fn a_missing_directory_is_refused() {
    let mut guest = Guest::start_without_handshake();
    let path = guest.path("nothing").to_str().expect("UTF-8").to_owned();
    let quota = Quota { path, allowed: ALLOWED, basis: QuotaBasis::Everything };
    let hello = conjure_guest::protocol::Hello { quota: Some(quota), ..guest.hello() };
    guest.send_json(FrameKind::Hello, 0, &hello);
    assert!(guest.stderr_text().contains("quota"));
}

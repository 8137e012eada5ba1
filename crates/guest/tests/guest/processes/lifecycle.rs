//! The end of the guest, however it comes.

use crate::client::{Guest, PLENTY, bash, wait_until};

/// Starts what is hard to end: in the background of a call that is over, and in one that runs.
fn busy() -> Guest {
    let mut guest = Guest::start();
    assert!(guest.bash("setsid sleep 1000 & (nohup sleep 1000 >/dev/null 2>&1 &)").result.is_ok());
    guest.open(bash("trap '' TERM HUP INT; setsid sleep 1000 & touch ready; sleep 1000"), PLENTY, None);
    guest.open(conjure_guest::protocol::Request::Write { path: "half".to_owned(), mode: None }, PLENTY, None);
    let ready = guest.work("ready");
    wait_until("all run", || ready.exists() && guest.leftovers().len() >= 4);
    guest
}

#[test]
fn the_end_of_the_stream_ends_everything() {
    let mut guest = busy();
    assert_eq!(guest.close().code(), Some(0));
    assert_eq!(guest.leftovers(), Vec::<String>::new(), "all is dead before the guest is");
    assert!(!guest.work("half").exists());
}

#[test]
fn sigterm_ends_everything() {
    let mut guest = busy();
    let pid = rustix::process::Pid::from_raw(guest.pid().cast_signed()).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert_eq!(guest.wait().code(), Some(0));
    assert_eq!(guest.leftovers(), Vec::<String>::new());
}

#[test]
fn nothing_outlives_a_guest_that_was_killed() {
    let mut guest = busy();
    guest.kill();
    guest.assert_nothing_left();
    let work = guest.path("work");
    wait_until("the draft is removed", || {
        let entries = std::fs::read_dir(&work).expect("a directory").flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".tmp")).count() == 0
    });
    assert!(!guest.work("half").exists());
}

#[test]
fn signals_to_the_terminal_s_group_and_debuggers_are_no_concern() {
    let mut guest = Guest::start();
    let status = std::fs::read_to_string(format!("/proc/{}/status", guest.pid())).expect("it runs");
    let blocked = status.lines().find(|line| line.starts_with("SigBlk")).expect("a line");
    // Interrupt (2), hangup (1), quit (3).
    let mask =
        u64::from_str_radix(blocked.split_ascii_whitespace().nth(1).expect("a mask"), 16).expect("hex");
    assert_eq!(mask & 0b111, 0b111);
    assert!(guest.bash("true").result.is_ok());
}

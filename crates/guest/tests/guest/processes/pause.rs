//! Pausing and resuming leftover processes.

use conjure_guest::protocol::{DiskUsage, ErrorCode, ExecEnd, Reply, Request};

use crate::client::{Guest, PLENTY, bash, wait_until};

/// Shell text that counts in a file, over and over, by processes that come and go.
const COUNT: &str = "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.001; done";

/// A guest in which something counts in the background.
fn counting() -> Guest {
    let mut guest = Guest::start();
    let script = format!("setsid bash -c '{COUNT}' > /dev/null 2>&1 &");
    assert_eq!(guest.bash(&script).end(), ExecEnd::Exited(0));
    wait_until_counting(&guest);
    guest
}

fn count(guest: &Guest) -> u64 {
    let text = std::fs::read_to_string(guest.work("count")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

#[track_caller]
fn wait_until_counting(guest: &Guest) {
    let before = count(guest);
    wait_until("it counts on", || count(guest) > before);
}

/// How often a pause is asked for again: on a machine that is busy, what runs may come to rest later than the guest waits for it.
const TRIES: u32 = 50;

#[track_caller]
pub(crate) fn pause(guest: &mut Guest) -> u64 {
    let mut result = guest.call(Request::Pause).result;
    for _ in 1..TRIES {
        match &result {
            Err(error) if error.code == ErrorCode::TimedOut => result = guest.call(Request::Pause).result,
            _ => break,
        }
    }
    match result {
        Ok(Reply::Pause { processes }) => processes,
        other => panic!("it is not paused: {other:?}"),
    }
}

/// Waits until the kernel holds nobody in the midst of something, such as a file that is being renamed.
#[track_caller]
fn wait_until_none_is_uninterruptible(guest: &Guest) {
    wait_until("no process is uninterruptible", || !states(guest).contains('D'));
}

#[track_caller]
fn resume(guest: &mut Guest) -> u64 {
    match guest.call(Request::Resume).result {
        Ok(Reply::Resume { processes }) => processes,
        other => panic!("it is not resumed: {other:?}"),
    }
}

/// The states of all threads of what the commands started.
fn states(guest: &Guest) -> String {
    guest.leftovers().iter().map(|process| states_of(process.split(' ').next().expect("a number"))).collect()
}

fn states_of(pid: &str) -> String {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return String::new() };
    let stats =
        tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("stat")).unwrap_or_default());
    stats.filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next()).collect()
}

#[track_caller]
pub(crate) fn assert_all_stopped(guest: &Guest) {
    let states = states(guest);
    assert!(states.contains('T') && states.chars().all(|state| matches!(state, 'T' | 'Z' | 'D')), "{states}");
}

#[test]
fn leftover_processes_are_stopped_and_resumed() {
    let mut guest = counting();
    for _ in 0..20 {
        assert!(pause(&mut guest) >= 1);
        assert_all_stopped(&guest);
        wait_until_none_is_uninterruptible(&guest);
        let before = count(&guest);
        // Files are of use meanwhile.
        assert!(guest.write("file", b"content").is_ok());
        assert_eq!(guest.read("file").content, b"content");
        assert_all_stopped(&guest);
        assert_eq!(count(&guest), before);
        assert!(resume(&mut guest) >= 1);
        wait_until_counting(&guest);
    }
}

#[test]
fn running_a_program_resumes_all() {
    let mut guest = counting();
    pause(&mut guest);
    let script =
        "read before < count; while read now < count; [ \"$now\" -le \"$before\" ]; do sleep 0.001; done";
    assert_eq!(guest.bash(script).end(), ExecEnd::Exited(0));
    assert_eq!(resume(&mut guest), 0, "it runs already");
}

#[test]
fn a_repeated_pause_stops_and_resumes_the_same_processes() {
    let mut guest = counting();
    let first = pause(&mut guest);
    assert_eq!(pause(&mut guest), first);
    assert_all_stopped(&guest);
    assert_eq!(resume(&mut guest), first);
    wait_until_counting(&guest);
    assert_eq!(resume(&mut guest), 0);
}

#[test]
fn pausing_without_processes_succeeds() {
    let mut guest = Guest::start();
    assert_eq!((pause(&mut guest), resume(&mut guest)), (0, 0));
    // Behind it a shim waits for the next program.
    assert_eq!(guest.bash("echo well").text(), "well\n");
    assert_eq!(pause(&mut guest), 0);
    assert_eq!(guest.bash("echo well").text(), "well\n");
}

#[test]
fn processes_that_were_stopped_before_are_not_resumed() {
    let mut guest = counting();
    let script = "setsid bash -c 'kill -STOP $$; touch awake' > /dev/null 2>&1 & while ! grep -q '^State:.T' \
                  /proc/$!/status; do sleep 0.001; done; echo $!";
    let outcome = guest.bash(script);
    let pid = outcome.text().trim().to_owned();
    let others = pause(&mut guest);
    assert_all_stopped(&guest);
    assert_eq!(pause(&mut guest), others);
    assert!(resume(&mut guest) < others);
    wait_until_counting(&guest);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
    assert!(status.contains("State:\tT"), "{status}");
    assert!(!guest.work("awake").exists());
    assert_eq!(guest.bash(&format!("kill -CONT {pid}")).end(), ExecEnd::Exited(0));
    wait_until("it is resumed by its signal", || guest.work("awake").exists());
}

#[test]
fn a_running_program_is_not_paused() {
    let mut guest = counting();
    let channel = guest.open(bash("touch ready; while [ ! -e go ]; do sleep 0.001; done"), PLENTY, None);
    let ready = guest.work("ready");
    wait_until("it runs", || ready.exists());
    let error = guest.call(Request::Pause).result.expect_err("refused");
    assert_eq!(error.code, ErrorCode::BadRequest, "{error}");
    wait_until_counting(&guest);
    assert!(guest.write("go", b"").is_ok());
    assert_eq!(guest.finish(channel).end(), ExecEnd::Exited(0));
    pause(&mut guest);
    assert_all_stopped(&guest);
}

#[test]
fn processes_that_keep_forking_are_stopped_and_resumed() {
    let mut guest = Guest::start();
    let script = "hop() { date +%N > hops; (hop &) ; }; for i in 1 2 3; do hop & done; touch ready";
    assert_eq!(guest.bash(&format!("({script}) > /dev/null 2>&1")).end(), ExecEnd::Exited(0));
    let hops = |guest: &Guest| std::fs::read_to_string(guest.work("hops")).unwrap_or_default();
    for _ in 0..5 {
        let before = hops(&guest);
        match guest.call(Request::Pause).result {
            Ok(Reply::Pause { processes }) => {
                assert!(processes > 0);
                assert_all_stopped(&guest);
                assert!(resume(&mut guest) > 0);
            }
            // On a machine that is busy they may be faster: then nothing has become of it.
            Err(error) => assert_eq!(error.code, ErrorCode::TimedOut, "{error}"),
            other => panic!("{other:?}"),
        }
        wait_until("they hop on", || hops(&guest) != before);
    }
}

/// Its first thread is a zombie as long as another lives.
#[test]
fn a_process_whose_first_thread_has_exited_is_stopped_resumed_and_killed() {
    let mut guest = Guest::start();
    let program = "
import ctypes, threading, time
def count():
    for i in range(10 ** 9):
        with open('count', 'w') as file:
            file.write(str(i))
        time.sleep(0.001)
threading.Thread(target=count).start()
ctypes.CDLL(None).pthread_exit(None)
";
    std::fs::write(guest.work("program.py"), program).expect("written");
    let outcome = guest.bash("setsid python3 program.py > /dev/null 2>&1 & echo $!");
    let pid = outcome.text().trim().to_owned();
    let states = || {
        let mut states: Vec<char> = states_of(&pid).chars().collect();
        states.sort_unstable();
        states.into_iter().collect::<String>()
    };
    wait_until("the first thread has ended", || states().contains('Z'));
    wait_until_counting(&guest);
    assert_eq!(pause(&mut guest), 1);
    wait_until("it is not uninterruptible", || !states().contains('D'));
    assert_eq!(states(), "TZ");
    assert_eq!(resume(&mut guest), 1);
    wait_until_counting(&guest);
    pause(&mut guest);
    assert_eq!(guest.close().code(), Some(0));
    assert_eq!(states(), "", "it is dead before the guest is");
}

/// Who keeps a quota looks often while something could write.
#[test]
fn the_guest_sleeps_during_a_pause() {
    let allowed = DiskUsage { bytes: 1 << 30, inodes: 1 << 20 };
    let mut guest = Guest::start_with_quota(allowed, |_| {});
    assert_eq!(guest.bash(&format!("setsid bash -c '{COUNT}' > /dev/null 2>&1 &")).end(), ExecEnd::Exited(0));
    wait_until_counting(&guest);
    pause(&mut guest);
    let wakes = |guest: &Guest| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", guest.pid())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:")).expect("a line");
        line.split_ascii_whitespace().nth(1).expect("a number").to_owned()
    };
    wait_until("nothing wakes the guest for some time", || {
        let before = wakes(&guest);
        #[expect(clippy::disallowed_methods, reason = "it is looked whether nothing happens")]
        std::thread::sleep(std::time::Duration::from_millis(400));
        wakes(&guest) == before
    });
    assert_all_stopped(&guest);
    resume(&mut guest);
    wait_until_counting(&guest);
}

#[test]
fn the_end_of_the_stream_kills_paused_processes() {
    let mut guest = counting();
    pause(&mut guest);
    assert_eq!(guest.close().code(), Some(0));
    assert_eq!(guest.leftovers(), Vec::<String>::new(), "all is dead before the guest is");
}

#[test]
fn sigterm_kills_paused_processes() {
    let mut guest = counting();
    pause(&mut guest);
    let pid = rustix::process::Pid::from_raw(guest.pid().cast_signed()).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert_eq!(guest.wait().code(), Some(0));
    assert_eq!(guest.leftovers(), Vec::<String>::new());
}

#[test]
fn paused_processes_do_not_outlive_a_killed_guest() {
    let mut guest = counting();
    pause(&mut guest);
    guest.kill();
    guest.assert_nothing_left();
}

//! Hosts that break the protocol.

use conjure_guest::protocol::{ErrorCode, FrameKind, Hello, Welcome};

use crate::client::{Guest, bash, wait_until};

/// Expects the guest to refuse what `act` sends, in one line, and to leave nothing behind.
#[track_caller]
fn check_refused(mut guest: Guest, words: &str, act: impl FnOnce(&mut Guest)) {
    act(&mut guest);
    let status = guest.wait();
    let said = guest.stderr_text();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains(words), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    guest.assert_nothing_left();
}

#[test]
fn an_invalid_frame_ends_the_guest_and_its_processes() {
    let mut guest = Guest::start();
    guest.open(bash("sleep 1000 & setsid sleep 1000"), 0, None);
    wait_until("both run", || {
        guest.leftovers().iter().filter(|left| left.contains("sleep 1000")).count() >= 2
    });
    check_refused(guest, "unknown kind 255", |guest| guest.send_raw(&[0, 0, 0, 0, 255, 0, 0, 0, 0]));
}

#[test]
fn hello_comes_first_and_once() {
    check_refused(Guest::start_without_handshake(), "before `Hello`", |guest| {
        guest.open(bash("true"), 0, None);
    });
    check_refused(Guest::start(), "second `Hello`", |guest| {
        let hello = guest.hello();
        guest.send_json(FrameKind::Hello, 0, &hello);
    });
    check_refused(Guest::start_without_handshake(), "not absolute", |guest| {
        let hello = Hello { workdir: "work".to_owned(), ..guest.hello() };
        guest.send_json(FrameKind::Hello, 0, &hello);
    });
}

#[test]
fn another_version_is_reported_and_refused() {
    check_refused(Guest::start_without_handshake(), "version 77", |guest| {
        let hello = Hello { version: 77, ..guest.hello() };
        guest.send_json(FrameKind::Hello, 0, &hello);
        let welcome: Welcome = guest.next_of(0).json().expect("a welcome");
        assert_eq!(welcome.version, conjure_guest::protocol::PROTOCOL_VERSION);
    });
}

#[test]
fn channels_are_used_once() {
    check_refused(Guest::start(), "used before", |guest| {
        let request = conjure_guest::protocol::Open { request: bash("true"), credit: 0, timeout_ms: None };
        guest.send_json(FrameKind::Open, 7, &request);
        guest.finish(7);
        guest.send_json(FrameKind::Open, 7, &request);
    });
}

#[test]
fn data_needs_credit_but_may_be_late() {
    let mut guest = Guest::start();
    let channel = guest.open(bash("true"), 0, None);
    guest.finish(channel);
    // Over, and never opened: both ignored.
    guest.send_data(channel, b"late");
    guest.send_data(99, b"early");
    guest.send(FrameKind::Cancel, 98, &[]);
    assert!(guest.bash("true").result.is_ok());
    check_refused(guest, "more data than credit", |guest| {
        let channel = guest.open(bash("sleep 1000"), 0, None);
        guest.send_data(channel, b"x");
    });
}

#[test]
fn more_operations_than_may_be_are_refused_and_the_rest_go_on() {
    let mut guest = Guest::start();
    // Content that never comes: each costs one process, and no program.
    let request = || conjure_guest::protocol::Request::Write { path: "f".to_owned(), mode: None };
    let open: Vec<u32> = (0..1024).map(|_| guest.open(request(), 0, None)).collect();
    let refused = guest.open(request(), 0, None);
    assert_eq!(guest.finish(refused).result.expect_err("too many").code, ErrorCode::Exhausted);
    for channel in &open {
        guest.send(FrameKind::Cancel, *channel, &[]);
    }
    for channel in open {
        let error = guest.finish(channel).result.expect_err("cancelled");
        // The machine may have had too few processes for all of them.
        assert!(matches!(error.code, ErrorCode::Cancelled | ErrorCode::Exhausted), "{error:?}");
    }
    assert!(guest.bash("true").result.is_ok());
    assert_eq!(
        std::fs::read_dir(guest.path("work")).expect("a directory").count(),
        1,
        "only the spill directory"
    );
}

//! Attacks, made from inside.

use conjure_guest::protocol::{CommandRules, ExecEnd, Request};

use super::{assert_confined, contained, plain, rules};
use crate::client::{Guest, exec_request};

const ATTACKS: &str = include_str!("../../attacks.py");

/// Makes the attacks on the guest with this process id; all of them, when none is named.
fn attack(guest: &mut Guest, pid: u32, names: &[&str]) -> String {
    let pid = pid.to_string();
    let arguments = [&["/usr/bin/python3", "-c", ATTACKS, &pid], names].concat();
    let outcome = guest.call(Request::Exec(exec_request(&arguments)));
    let said = format!("{}{}", outcome.text(), String::from_utf8_lossy(&outcome.stderr));
    assert_eq!(outcome.end(), ExecEnd::Exited(0), "{said}");
    said
}

#[track_caller]
fn assert_all_refused(said: &str) {
    let wrong: Vec<&str> = said.lines().filter(|line| !line.starts_with("ok ")).collect();
    let [summary] = wrong.as_slice() else { panic!("{wrong:#?}") };
    assert!(summary.ends_with("wrong: 0") && said.lines().count() > 100, "{summary}");
}

#[test]
fn every_attack_is_refused() {
    let mut guest = plain();
    assert_confined(&guest.handshake(rules()));
    let pid = guest.pid();
    assert_all_refused(&attack(&mut guest, pid, &[]));
    // It lives, and does what it is asked to.
    assert_eq!(guest.bash("echo $((6 * 7))").text(), "42\n");
}

#[test]
fn every_attack_on_process_1_is_refused() {
    let Some(mut guest) = contained() else { return };
    let welcome = guest.handshake(rules());
    assert_confined(&welcome);
    assert_eq!(welcome.pid, 1);
    assert_all_refused(&attack(&mut guest, 1, &[]));
    assert_eq!(guest.bash("echo $((6 * 7))").text(), "42\n");
}

#[test]
fn the_attacks_would_work_without_the_rules() {
    let mut guest = plain();
    guest.handshake(CommandRules::default());
    let names = ["ptrace traceme", "prlimit64 sigpending", "setpriority", "kill everybody", "personality"];
    let pid = guest.pid();
    let said = attack(&mut guest, pid, &names);
    for name in names {
        assert!(said.contains(&format!("WRONG {name}: expected EPERM, got 0")), "{said}");
    }
}

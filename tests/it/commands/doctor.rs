//! `conjure doctor` on this machine. The findings differ between machines; that it reports them does not.

use crate::support::{Conjure, script};

#[test]
fn the_doctor_finds_what_the_tests_need() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let report = Conjure::new(["doctor", "--format", "json"]).finish().code(0);
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(report["ok"], true);
    let checks = report["checks"].as_array().unwrap();
    let check = |name: &str| checks.iter().find(|check| check["name"] == name).unwrap();
    assert_eq!(check("sandbox local")["state"], "ok");
    assert_eq!(check("sandbox jail")["state"], "ok");
    assert_eq!(check("bash")["state"], "ok");
    assert_eq!(check("model key")["state"], "missing");
    // Unavoidable differences are described.
    for (name, finding) in
        [("  disk", "130 MB were measured"), ("  paths", "can read in /proc/self/mountinfo")]
    {
        assert!(check(name)["found"].as_str().unwrap().contains(finding), "{name}");
    }
    for name in ["user namespaces", "Landlock", "seccomp", "container engine", "node", "configuration"] {
        assert!(check(name)["found"].is_string(), "{name}");
    }
    for check in checks.iter().filter(|check| check["state"] != "ok") {
        assert!(check["remedy"].is_string(), "{check} has no remedy");
    }
}

#[test]
fn a_key_is_seen_and_never_shown() {
    let report = Conjure::new(["doctor"]).env("ANTHROPIC_API_KEY", "sk-very-secret").finish().code(0);
    assert!(report.stdout.contains("ANTHROPIC_API_KEY is set"), "{}", report.stdout);
    assert!(!report.stdout.contains("very-secret") && !report.stderr.contains("very-secret"));
}

#[test]
fn a_broken_configuration_is_a_finding_with_a_remedy() {
    let doctor = Conjure::new(["doctor"]);
    std::fs::create_dir(doctor.home().join(".conjure")).unwrap();
    std::fs::write(doctor.home().join(".conjure/config.toml"), "max_iteration = 3").unwrap();
    let report = doctor.finish().code(1);
    assert!(report.stdout.contains("FAIL configuration"), "{}", report.stdout);
    assert!(report.stdout.contains("did you mean `max_iterations`?"), "{}", report.stdout);
}

#[test]
fn without_bash_the_doctor_says_how_to_get_it() {
    let doctor = Conjure::new(["doctor"]).env("CONJURE_EXECUTOR", "local");
    let report = doctor.env("PATH", "/nowhere").finish().code(1);
    assert!(report.stdout.contains("install bash"), "{}", report.stdout);
}

/// In a user namespace of its own, where the setting is changed for what runs there alone.
#[test]
fn without_user_namespaces_the_doctor_says_how_to_switch_them_on() {
    if !test_support::has_user_namespaces() {
        return;
    }
    const SCRIPT: &str = "echo 0 > /proc/sys/user/max_user_namespaces && \
                          exec setpriv --inh-caps=-all --ambient-caps=-all \"$@\"";
    let starter = ["unshare", "--user", "--map-user=1234", "--map-group=1234", "--keep-caps"];
    let starter = [&starter[..], &["sh", "-c", SCRIPT, "sh"]].concat();
    let report = Conjure::started_by(&starter, ["doctor"]).finish().code(1);
    let jail = report.stdout.lines().find(|line| line.starts_with("FAIL sandbox jail")).unwrap();
    assert!(jail.contains("`sysctl user.max_user_namespaces=15000` switches them on"), "{jail}");
    assert!(
        report.stdout.contains("`--sandbox local` does without, and isolates nothing"),
        "{}",
        report.stdout
    );
    let check = report.stdout.lines().skip_while(|line| !line.starts_with("no   user namespaces"));
    let check: Vec<&str> = check.take(2).collect();
    assert!(check[0].contains("switched off") && check[1].contains("hint: sysctl user."), "{check:?}");
    // Nor is it weakened silently where a skill is run.
    let script = script("- content: hello");
    let args = ["run", "--skills", "fixtures/skills", "--script", script.path().to_str().unwrap(), "hello"];
    Conjure::started_by(&starter, args).finish().code(1).says("user.max_user_namespaces=15000");
    // But where that was asked for, which is said.
    let run = Conjure::started_by(&starter, args).args(["--sandbox", "jail-or-local"]);
    run.finish().code(0).says("user.max_user_namespaces=15000").says("`local` isolates nothing");
}

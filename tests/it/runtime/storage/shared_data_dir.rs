//! Several runtimes over one data directory, runtimes in memory, and temporary directories.

use std::path::Path;

use conjure::config::ExecutorKind;
use conjure::{
    Clock as _, Config, ProcessEnv, Runtime, RuntimeError, RuntimeOptions, SessionError, Settings,
    SystemClock,
};

use crate::runtime::fixture::{Fixture, ask, follow, model, soon, spec, tenant};
use crate::runtime::open_failpoints::{leftovers, on_disk, pause, until_nothing_is_left};

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn two_runtimes_in_one_process_share_a_data_directory() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let [first, second] = [fixture.start().await, fixture.start().await];
    let acme = tenant("acme");
    let openings =
        (0..6).map(|number| if number % 2 == 0 { first.open(spec()) } else { second.open(spec()) });
    let opened = futures_util::future::try_join_all(openings).await.unwrap();
    assert_eq!(leftovers(&fixture, &first).await, (6, [6, 1, 0]));
    ask(&opened[0], "$ echo mine > note").await;
    // One has it; the other neither uses it nor deletes it.
    let in_use = second.session(&acme, opened[0].id()).await.unwrap_err();
    assert!(in_use.to_string().contains("leased by"), "{in_use}");
    let in_use = second.delete(&acme, opened[0].id()).await.unwrap_err();
    assert!(matches!(in_use, RuntimeError::Session(SessionError::TakenOver { .. })), "{in_use}");
    // Its deletion has not started then.
    assert_eq!(on_disk(&fixture)[2], 0);
    assert_eq!(ask(&opened[0], "$ cat note").await, "it says: mine\n");
    opened[0].close().await.unwrap();
    let deadline = soon();
    let revived = loop {
        match second.session(&acme, opened[0].id()).await {
            Ok(session) => break session,
            Err(error) => assert!(!SystemClock.remaining(deadline).is_zero(), "{error}"),
        }
        pause().await;
    };
    assert!(ask(&revived, "$ cat note").await.ends_with("mine\n"));
    let deletions = opened.iter().enumerate().map(|(number, session)| {
        let runtime = if number % 2 == 0 && number > 0 { &first } else { &second };
        runtime.delete(&acme, session.id())
    });
    futures_util::future::try_join_all(deletions).await.unwrap();
    // The skill may be left to the next start, where both removed the last ones at once.
    assert_eq!((leftovers(&fixture, &first).await.0, on_disk(&fixture)[0]), (0, 0));
    first.shutdown(soon()).await.unwrap();
    second.shutdown(soon()).await.unwrap();
    drop((first, second));
    let third = fixture.start().await;
    until_nothing_is_left(&fixture, &third).await;
    third.shutdown(soon()).await.unwrap();
}

/// It counts neither its skills among those that are recorded, nor those among its own.
#[tokio::test]
async fn a_runtime_in_memory_removes_no_skill_of_persistent_ones() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let keeping = fixture.start().await;
    let persistent = keeping.open(spec()).await.unwrap();
    let ephemeral = Runtime::spawn(fixture.options().ephemeral()).await.unwrap();
    let passing = ephemeral.open(spec()).await.unwrap();
    let run = "$ sh /mnt/skills/greeting/scripts/run.sh";
    assert_eq!(ask(&passing, run).await, "it says: hello\n");
    ephemeral.delete(&tenant("acme"), passing.id()).await.unwrap();
    assert_eq!(ask(&persistent, run).await, "it says: hello\n");
    keeping.shutdown(soon()).await.unwrap();
    let last = ephemeral.open(spec()).await.unwrap();
    keeping.delete(&tenant("acme"), persistent.id()).await.unwrap_err();
    drop(keeping);
    let keeping = fixture.start().await;
    keeping.delete(&tenant("acme"), persistent.id()).await.unwrap();
    assert_eq!(ask(&last, run).await, "it says: hello\n");
    ephemeral.shutdown(soon()).await.unwrap();
    keeping.shutdown(soon()).await.unwrap();
    drop((passing, last, ephemeral, keeping));
    assert_eq!(on_disk(&fixture), [0; 3]);
}

/// The names that this version gave to files and directories of earlier versions.
const FORMER_NAMES: [(&str, &str); 4] = [
    ("remains", "remote-cleanup"),
    ("tenants/acme/under-way", "tenants/acme/pending"),
    ("tenants/acme/gate.lock", "tenants/acme/tenant.lock"),
    ("hosts", "processes"),
];

/// Gives the names of the version before to everything in this data directory.
fn with_former_names(data: &Path) {
    std::fs::remove_file(data.join("hosts")).unwrap();
    std::fs::create_dir(data.join("remote-cleanup")).unwrap();
    for (former, current) in FORMER_NAMES {
        std::fs::rename(data.join(current), data.join(former)).unwrap();
    }
    std::fs::rename(data.join("hosts/startup.lock"), data.join("hosts/begin.turn")).unwrap();
}

#[tokio::test]
async fn a_data_directory_of_an_earlier_version_opens_and_its_sessions_resume() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "$ echo mine > note").await;
    let id = session.id();
    runtime.shutdown(soon()).await.unwrap();
    drop((session, runtime));
    with_former_names(&fixture.data());
    // An operation that a process of that version had begun.
    let interrupted = conjure::SessionId::random().unwrap().stored_name();
    std::fs::write(fixture.data().join("tenants/acme/under-way").join(&interrupted), "").unwrap();
    // That process is alive.
    let lives = std::fs::File::create(fixture.data().join("hosts/former")).unwrap();
    lives.try_lock().unwrap();
    let error = Runtime::spawn(fixture.options()).await.unwrap_err();
    assert!(error.to_string().contains("a process of an earlier version of Conjure uses it"), "{error}");
    drop(lives);

    let runtime = fixture.start().await;
    let revived = runtime.session(&tenant("acme"), id).await.unwrap();
    assert!(ask(&revived, "$ cat note").await.ends_with("mine\n"));
    assert!(!fixture.data().join("tenants/acme/pending").join(interrupted).exists());
    for (former, current) in FORMER_NAMES {
        assert!(!fixture.data().join(former).is_dir(), "{former}");
        assert!(fixture.data().join(current).exists(), "{current}");
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// Leftovers of a killed host in memory are swept like those of any other.
#[tokio::test]
async fn a_process_in_memory_is_registered_too() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let marks = || {
        let mut names = names(&fixture.data().join("processes"));
        names.retain(|name| !name.contains('.'));
        names.len()
    };
    let ephemeral = Runtime::spawn(fixture.options().ephemeral()).await.unwrap();
    assert_eq!(marks(), 1);
    ephemeral.shutdown(soon()).await.unwrap();
    assert_eq!(marks(), 0);
    // As one leaves it that was killed: a mark, and a place of a process that is no more.
    std::fs::write(
        fixture.data().join("processes").join(conjure::artifact::Digest::of_bytes(b"killed").to_hex()),
        "",
    )
    .unwrap();
    let path = fixture.data().join("tenants/acme/workspaces/4194304999-0");
    std::fs::create_dir_all(path.join("workspace")).unwrap();
    std::fs::write(path.join("lock"), "").unwrap();
    let ephemeral = Runtime::spawn(fixture.options().ephemeral()).await.unwrap();
    assert!(!path.exists());
    ephemeral.shutdown(soon()).await.unwrap();
}

/// Without a configured data directory, retained workspaces outlive the runtime.
#[tokio::test]
async fn a_retained_workspace_outlives_a_temporary_data_directory() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let settings =
        Settings { executor: Some(ExecutorKind::Jail), skill_paths: Some(Vec::new()), ..Settings::default() };
    let config =
        Config::from_layers(settings, &ProcessEnv::from_pairs([("PATH", "/usr/bin:/bin")]), None).unwrap();
    let runtime = Runtime::spawn(RuntimeOptions::from(config).model("echo", model())).await.unwrap();
    let [retained, other] = [runtime.open(spec()).await.unwrap(), runtime.open(spec()).await.unwrap()];
    for session in [&retained, &other] {
        ask(session, "$ echo kept > note").await;
    }
    let acme = tenant("acme");
    let lost = runtime.workspace(&acme, other.id()).await.unwrap().unwrap();
    let path = runtime.workspace(&acme, retained.id()).await.unwrap().unwrap();
    retained.close().await.unwrap();
    let deadline = soon();
    while runtime.health().live_sessions > 1 {
        assert!(!SystemClock.remaining(deadline).is_zero(), "timed out waiting for the passivation");
        pause().await;
    }
    assert_eq!(runtime.keep_workspace(&acme, retained.id()).await.unwrap().as_ref(), Some(&path));
    runtime.shutdown(soon()).await.unwrap();
    drop((retained, other, runtime));
    assert_eq!(std::fs::read_to_string(path.join("note")).unwrap(), "kept\n");
    assert!(!lost.exists());
    let home = path.ancestors().nth(5).unwrap();
    assert_eq!(names(home), ["tenants"]);
    std::fs::remove_dir_all(home).unwrap();
}

/// It was mended, or put back, and the runtime continues; nothing is made in its place in the meantime.
#[tokio::test]
async fn a_moved_data_directory_is_reported_and_may_be_restored() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "$ echo kept > note").await;
    let aside = fixture.dir().join("aside");
    std::fs::rename(fixture.data(), &aside).unwrap();
    for _ in 0..2 {
        let error = runtime.open(spec()).await.unwrap_err();
        let RuntimeError::Data { path, .. } = &error else { panic!("{error}") };
        assert_eq!(*path, fixture.data().canonicalize().unwrap_or(fixture.data()));
        std::fs::create_dir_all(fixture.data()).unwrap();
    }
    std::fs::remove_dir(fixture.data()).unwrap();
    // A restart would not find what was recorded now, so nothing is.
    let refused = session.send("anybody?").await.unwrap_err();
    assert!(matches!(refused, SessionError::Journal { .. }), "{refused:?}");
    assert!(refused.to_string().contains("put the file back"), "{refused}");
    std::fs::rename(&aside, fixture.data()).unwrap();
    let deadline = soon();
    let mut turn = loop {
        match session.send("hello").await {
            Ok(turn) => break turn,
            Err(error) => assert!(!SystemClock.remaining(deadline).is_zero(), "{error}"),
        }
        pause().await;
    };
    assert_eq!(follow(&mut turn).await.1, "heard: hello");
    assert_eq!(ask(&session, "$ cat note").await, "it says: kept\n");
    let other = runtime.open(spec()).await.unwrap();
    assert_eq!(ask(&other, "hello").await, "heard: hello");
    // A permanently removed tenant directory is recreated for the next session.
    runtime.delete(&tenant("acme"), other.id()).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
    drop(runtime);
    let runtime = fixture.start().await;
    let events = runtime.events(&tenant("acme"), session.id(), 0).await.unwrap();
    assert!(events.iter().any(|event| serde_json::to_string(event).unwrap().contains("heard: hello")));
    runtime.shutdown(soon()).await.unwrap();
}

/// A session pins the version that the catalog found, or the open fails with the reason.
#[tokio::test]
async fn a_skill_edited_since_its_discovery_is_read_again() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    // The watcher does not notice the edit in time.
    let late = std::time::Duration::from_secs(3600);
    let mut registry = conjure::runtime::RegistryOptions::default();
    (registry.debounce, registry.rescan_interval) = (late, late);
    let runtime = Runtime::spawn(fixture.options().registry(registry)).await.unwrap();
    let file = fixture.skill("greeting").join("SKILL.md");
    for (text, reason) in [
        ("no frontmatter at all", "frontmatter"),
        ("---\nname: other\ndescription: Another skill.\n---\n", "it is called `other` now"),
        ("---\nname: greeting\ndescription: Greets: people.\n---\n", "greeting/SKILL.md"),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = runtime.open(spec().skills(["greeting"])).await.unwrap_err();
        let RuntimeError::SkillChanged { name, path, .. } = &error else { panic!("{error}") };
        assert_eq!((name.as_str(), path), ("greeting", &fixture.skill("greeting").canonicalize().unwrap()));
        let message = error.to_string();
        assert!(message.contains(reason) && !message.contains("draft-"), "{message}");
        assert_eq!(error.hint().unwrap(), "mend it, or open the session without it");
    }
    until_nothing_is_left(&fixture, &runtime).await;
    // One that is as good as before is taken as it is now.
    fixture.write_skill("greeting", "Greets people otherwise.", "echo good day");
    let session = runtime.open(spec().skills(["greeting"])).await.unwrap();
    assert_eq!(ask(&session, "$ sh /mnt/skills/greeting/scripts/run.sh").await, "it says: good day\n");
    runtime.shutdown(soon()).await.unwrap();
}

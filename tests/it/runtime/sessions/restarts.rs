//! Sessions after a restart of their host: they resume where they were, with their skills, inputs and files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure::config::ExecutorKind;
use conjure::conversation::{Decision, TurnStop};
use conjure::journal::{LeaseOwner, SessionKey};
use conjure::session::{SessionBody, SessionSecrets, SessionStatus};
use conjure::tool::{Authorization, ToolCall};
use conjure::{Clock as _, RuntimeError, SessionId, SystemClock, approver_fn};
use conjure_journal::{Journal as _, SqliteJournal, SqliteOptions};

use crate::runtime::fixture::{Fixture, ask, follow, say, soon, spec, tenant, until};
use crate::runtime::open_failpoints::pause;

#[tokio::test]
async fn a_pending_approval_survives_a_restart() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let asking = || {
        let approver = approver_fn(|call: ToolCall| async move {
            Authorization::Ask { reason: format!("may it run `{}`?", call.name) }
        });
        fixture.options().approver(approver)
    };
    let runtime = conjure::Runtime::spawn(asking()).await.unwrap();
    let session = runtime.open(spec()).await.unwrap();
    let mut turn = session.send("$ echo done > note; cat note").await.unwrap();
    let mut listener = session.subscribe(0).await.unwrap();
    while session.snapshot().await.unwrap().approvals.is_empty() {
        listener.next().await.unwrap();
    }
    runtime.shutdown(soon()).await.unwrap();
    // The turn has not ended: a pending approval is not interrupted.
    drop(turn);

    let runtime = conjure::Runtime::spawn(asking()).await.unwrap();
    let listed = runtime.sessions(&tenant("acme"), None, 10).await.unwrap();
    let SessionBody::Ok(contents) = &listed.sessions[0].body else { panic!("{listed:?}") };
    assert!(matches!(contents.status, SessionStatus::AwaitingApproval(_)), "{contents:?}");
    let revived = runtime.session(&tenant("acme"), session.id()).await.unwrap();
    let approvals = revived.snapshot().await.unwrap().approvals;
    assert_eq!((approvals.len(), approvals[0].reason.as_str()), (1, "may it run `bash_tool`?"));
    revived.decide(approvals[0].call.id.clone(), Decision::Allow).await.unwrap();
    // Later events reach subscribers: the queued turn comes after it.
    turn = revived.send("and now?").await.unwrap();
    assert_eq!(follow(&mut turn).await.1, "heard: and now?");
    let note =
        fixture.data().join(format!("tenants/acme/workspaces/{}/workspace/note", session.id().stored_name()));
    assert_eq!(std::fs::read_to_string(note).unwrap(), "done\n");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_skill_stays_as_it_was_when_the_session_was_opened() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let run = "$ sh /mnt/skills/greeting/scripts/run.sh";
    let session = runtime.open(spec()).await.unwrap();
    // Edited before any sandbox was made, and again after a restart; then it is gone.
    fixture.write_skill("greeting", "Greets people otherwise.", "echo good day");
    assert_eq!(ask(&session, run).await, "it says: hello\n");
    let other = runtime.open(spec()).await.unwrap();
    assert_eq!(ask(&other, run).await, "it says: good day\n");
    runtime.shutdown(soon()).await.unwrap();
    std::fs::remove_dir_all(fixture.skill("greeting")).unwrap();

    let runtime = fixture.start().await;
    for (id, says) in [(session.id(), "hello\n"), (other.id(), "good day\n")] {
        let revived = runtime.session(&tenant("acme"), id).await.unwrap();
        let answer = ask(&revived, run).await;
        assert!(answer.ends_with(says), "{answer}");
    }
    let error = runtime.open(spec().skills(["greeting"])).await.unwrap_err();
    assert_eq!(error.to_string(), "the catalog `default` has no skill `greeting`");
    runtime.shutdown(soon()).await.unwrap();

    // A pinned skill of the session is missing or changed.
    let changed = pinned(&fixture, session.id()).await;
    let script = changed.join("scripts/run.sh");
    std::fs::remove_file(&script).unwrap();
    std::fs::write(&script, "echo bad day\n").unwrap();
    let deleted = pinned(&fixture, other.id()).await;
    std::fs::remove_dir_all(&deleted).unwrap();
    let runtime = fixture.start().await;
    for (id, path, what) in
        [(session.id(), &changed, "was changed"), (other.id(), &deleted, "is not there any more")]
    {
        let error = runtime.session(&tenant("acme"), id).await.unwrap_err();
        let RuntimeError::SkillLost { name, path: reported, .. } = &error else { panic!("{error}") };
        assert_eq!((name.as_str(), reported), ("greeting", path));
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.hint().unwrap().contains("open a new session"), "{error}");
    }
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_damaged_pinned_skill_is_repaired_by_the_next_session() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
    let pinned_dir = pinned(&fixture, session.id()).await;
    let (run, acme) = ("$ sh /mnt/skills/greeting/scripts/run.sh", tenant("acme"));
    let change = || {
        std::fs::remove_file(pinned_dir.join("scripts/run.sh")).unwrap();
        std::fs::write(pinned_dir.join("scripts/run.sh"), "echo bad day\n").unwrap();
    };
    let remove = || std::fs::remove_dir_all(&pinned_dir).unwrap();
    for damage in [&change as &dyn Fn(), &remove] {
        damage();
        // An undeletable directory blocks nothing.
        std::fs::write(fixture.data().join("tenants/acme/skills/draft-file"), "no directory").unwrap();
        let runtime = fixture.start().await;
        let error = runtime.session(&acme, session.id()).await.unwrap_err();
        assert!(error.hint().unwrap().contains("open a new session"), "{error}");
        let other = runtime.open(spec()).await.unwrap();
        assert_eq!(ask(&other, run).await, "it says: hello\n");
        let revived = runtime.session(&acme, session.id()).await.unwrap();
        assert!(ask(&revived, run).await.ends_with("hello\n"));
        runtime.shutdown(soon()).await.unwrap();
        let entries = std::fs::read_dir(fixture.data().join("tenants/acme/skills")).unwrap();
        // The skill, and what cannot be removed.
        assert_eq!(entries.count(), 2);
    }
}

/// The directory of the session's pinned skill.
async fn pinned(fixture: &Fixture, id: SessionId) -> PathBuf {
    let runtime = fixture.start().await;
    let profile = runtime.profile(&tenant("acme"), id).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
    let digest = profile.skills[0].digest.to_hex();
    fixture.data().join("tenants/acme/skills").join(digest).join("greeting")
}

#[tokio::test]
async fn secrets_are_never_recorded_and_are_provided_again() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let spec = spec()
        .environment("REGION", "north")
        .environment("CRM_TOKEN", "t0ken-of-the-crm")
        .secret("password", "pa55word-of-ada");
    let session = runtime.open(spec).await.unwrap();
    assert_eq!(
        ask(&session, "$ echo $REGION $CRM_TOKEN pa55word-of-ada").await,
        "it says: north [REDACTED:CRM_TOKEN] [REDACTED:password]\n"
    );
    // Also what the model says, at once and later.
    assert_eq!(ask(&session, "it is pa55word-of-ada").await, "heard: it is [REDACTED:password]");
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.last_text, "heard: it is [REDACTED:password]");
    let (acme, id) = (tenant("acme"), session.id());
    let listed = runtime.sessions(&acme, None, 10).await.unwrap();
    assert!(!format!("{listed:?}").contains("pa55word"));
    runtime.shutdown(soon()).await.unwrap();
    // The user's message is the exception: it is recorded verbatim.
    assert!(!contains_bytes(&fixture.data(), b"t0ken-of-the-crm"));

    let runtime = fixture.start().await;
    let error = runtime.session(&acme, id).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the session {id} needs the variable `CRM_TOKEN`, the secret `password`, which are not recorded"
        )
    );
    let part = SessionSecrets::new().environment("CRM_TOKEN", "an0ther-token");
    let error = runtime.session_with(&acme, id, part.clone()).await.unwrap_err();
    assert!(error.to_string().contains("the secret `password`, which is not recorded"), "{error}");
    // Earlier values need not be provided again.
    let revived = runtime
        .session_with(&acme, id, SessionSecrets::new().secret("password", "pa55word-of-ada"))
        .await
        .unwrap();
    let answer = ask(&revived, "$ echo $REGION $CRM_TOKEN").await;
    assert!(answer.ends_with("north [REDACTED:CRM_TOKEN]\n"), "{answer}");
    runtime.shutdown(soon()).await.unwrap();

    let runtime = fixture.start().await;
    let without = runtime.session_with(&acme, id, SessionSecrets::new().allow_missing()).await.unwrap();
    let answer = ask(&without, "$ echo $REGION:$CRM_TOKEN:").await;
    assert!(answer.ends_with("north::\n"), "{answer}");
    runtime.shutdown(soon()).await.unwrap();
}

/// Existing subscribers do not see a new secret, nor does the model in tool output.
#[tokio::test]
async fn a_secret_provided_later_is_redacted_at_once() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    let mut listener = session.subscribe(0).await.unwrap();
    let secrets = SessionSecrets::new()
        .environment("LATE_TOKEN", "t0ken-given-later")
        .secret("late", "pa55word-of-eve");
    runtime.session_with(&tenant("acme"), session.id(), secrets).await.unwrap();
    let answer = ask(&session, "$ echo pa55word-of-eve t0ken-given-later").await;
    assert_eq!(answer, "it says: [REDACTED:late] [REDACTED:LATE_TOKEN]\n");
    let end = session.snapshot().await.unwrap().events;
    while listener.next_seq() < end {
        let update = format!("{:?}", listener.next().await.unwrap());
        assert!(!update.contains("pa55word-of-eve") && !update.contains("t0ken-given"), "{update}");
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// Also for a session with a live handle, which is only restarted.
#[tokio::test]
async fn missing_parts_of_a_live_session_are_reported_by_type() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let work = fixture.dir().join("work");
    std::fs::create_dir(&work).unwrap();
    let runtime = fixture.start().await;
    let session = runtime.open(spec().workspace(&work)).await.unwrap();
    session.close().await.unwrap();
    until(async || runtime.health().live_sessions == 0).await;
    std::fs::remove_dir(&work).unwrap();
    let error = runtime.session(&tenant("acme"), session.id()).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Workspace { path, .. } if *path == work), "{error}");
    std::fs::create_dir(&work).unwrap();
    runtime.session(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!(ask(&session, "hello").await, "heard: hello");
    runtime.shutdown(soon()).await.unwrap();
}

/// True if a file in the directory contains these bytes.
fn contains_bytes(dir: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        let kind = std::fs::symlink_metadata(&path).unwrap();
        if kind.is_dir() {
            return contains_bytes(&path, bytes);
        }
        kind.is_file() && std::fs::read(&path).unwrap().windows(bytes.len()).any(|window| window == bytes)
    })
}

#[tokio::test]
async fn the_lease_of_a_killed_process_is_taken_over_at_once() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
    // As a host leaves it that is killed with the session.
    let journal = SqliteJournal::open(&fixture.data().join("journal"), SqliteOptions::default()).unwrap();
    let (key, owner) = (SessionKey::new(tenant("acme"), session.id()), LeaseOwner::new("killed").unwrap());
    journal.acquire_lease(&key, &owner, Duration::from_secs(3600)).await.unwrap();
    let runtime = fixture.start().await;
    // Its process is unknown and may be alive.
    let error = runtime.session(&key.tenant, key.session).await.unwrap_err();
    assert!(error.to_string().contains("leased by `killed`"), "{error}");
    let hosts = fixture.data().join("processes");
    let mark = hosts.join(conjure::artifact::Digest::of_bytes(b"killed").to_hex());
    // It lives: its mark is locked.
    let lock = std::fs::File::create(&mark).unwrap();
    lock.lock().unwrap();
    runtime.session(&key.tenant, key.session).await.unwrap_err();
    drop(lock);
    // A process that another test is just starting has what was open here until it runs its program.
    let deadline = soon();
    while std::fs::File::open(&mark).unwrap().try_lock_shared().is_err() {
        assert!(!SystemClock.remaining(deadline).is_zero(), "somebody has the mark");
        pause().await;
    }
    let revived = runtime.session(&key.tenant, key.session).await.unwrap();
    assert_eq!(ask(&revived, "hello").await, "heard: hello");
    runtime.shutdown(soon()).await.unwrap();
    drop(runtime);
    // The next start clears up after it, and ends in order itself.
    let next = fixture.start().await;
    let names: Vec<_> = std::fs::read_dir(&hosts).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(names.contains(&mark.with_extension("dead")) && !mark.exists(), "{names:?}");
    next.shutdown(soon()).await.unwrap();
    journal.close().await;
}

#[tokio::test]
async fn an_embedders_directory_is_used_and_required_at_revival() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let runtime = fixture.start().await;
    let session = runtime.open(spec().workspace(&work)).await.unwrap();
    ask(&session, "$ echo report > report.txt").await;
    let (acme, id) = (tenant("acme"), session.id());
    let files = runtime.files(&acme, id).await.unwrap();
    assert_eq!((files.files.len(), files.files[0].size, files.complete), (1, 7, true));
    // Where other sessions' files are, none works.
    for inner in [fixture.data(), fixture.data().join("journal")] {
        let error = runtime.open(spec().workspace(&inner)).await.unwrap_err();
        assert!(error.to_string().contains("the files of all sessions"), "{error}");
    }
    runtime.shutdown(soon()).await.unwrap();
    std::fs::rename(&work, dir.path().join("elsewhere")).unwrap();
    let runtime = fixture.start().await;
    let error = runtime.session(&acme, id).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Workspace { path, .. } if *path == work), "{error}");
    std::fs::rename(dir.path().join("elsewhere"), &work).unwrap();
    let revived = runtime.session(&acme, id).await.unwrap();
    assert!(ask(&revived, "$ cat report.txt").await.ends_with("report\n"));
    // It is the host's, and stays.
    runtime.delete(&acme, id).await.unwrap();
    assert!(work.join("report.txt").is_file());
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn sessions_are_listed_page_by_page_without_being_started() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let mut ids = Vec::new();
    for number in 0..3 {
        let session = runtime.open(spec().metadata("number", number.to_string())).await.unwrap();
        ask(&session, &format!("this is {number}")).await;
        ids.insert(0, session.id());
    }
    runtime.shutdown(soon()).await.unwrap();
    let runtime = fixture.start().await;
    let acme = tenant("acme");
    let first = runtime.sessions(&acme, None, 2).await.unwrap();
    let second = runtime.sessions(&acme, first.next, 2).await.unwrap();
    assert_eq!((first.sessions.len(), second.sessions.len(), second.next), (2, 1, None));
    for (index, summary) in first.sessions.iter().chain(&second.sessions).enumerate() {
        let SessionBody::Ok(contents) = &summary.body else { panic!("{summary:?}") };
        assert_eq!((summary.id, &summary.lease_owner), (ids[index], &None));
        assert_eq!((contents.status, contents.turns), (SessionStatus::Idle, 1));
        assert!(matches!(contents.last_stop, Some(TurnStop::Answered(_))));
        assert_eq!(contents.last_text, format!("heard: this is {}", 2 - index));
        assert_eq!(contents.metadata["number"], (2 - index).to_string());
        assert!(summary.opened <= summary.updated && summary.events > 3);
        let events = runtime.events(&acme, summary.id, 0).await.unwrap();
        let kinds: Vec<String> = events
            .iter()
            .map(|event| serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned())
            .collect();
        assert!(kinds.contains(&"user.message".to_owned()) && kinds.contains(&"agent.message".to_owned()));
    }
    assert_eq!(runtime.health().live_sessions, 0);
    assert_eq!(runtime.sessions(&tenant("other"), None, 10).await.unwrap().sessions, []);
    runtime.shutdown(soon()).await.unwrap();
}

/// Ids are random, so this needs a journal from another source.
#[tokio::test]
async fn one_id_of_two_tenants_is_two_sessions() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "$ echo acme > note").await;
    runtime.shutdown(soon()).await.unwrap();
    let journal = SqliteJournal::open(&fixture.data().join("journal"), SqliteOptions::default()).unwrap();
    let [acme_key, twin] = ["acme", "twin"].map(|name| SessionKey::new(tenant(name), session.id()));
    let first = journal.read(&acme_key, 0, conjure_journal::PageLimit::default()).await.unwrap();
    journal.create(&twin).await.unwrap();
    let opened = &first.events[0];
    let opened = conjure_journal::NewEvent::new(opened.kind.clone(), opened.version, opened.body.clone());
    journal.append(&twin, 0, conjure_journal::Epoch::NONE, vec![opened]).await.unwrap();
    journal.close().await;

    let runtime = fixture.start().await;
    // acme's pinned skills belong to acme.
    let error = runtime.session(&twin.tenant, twin.session).await.unwrap_err();
    assert!(matches!(error, RuntimeError::SkillLost { .. }), "{error}");
    let keep = runtime.open(conjure::SessionSpec::new(tenant("twin"))).await.unwrap();
    let other = runtime.session(&twin.tenant, twin.session).await.unwrap();
    let acme_key = runtime.session(&acme_key.tenant, acme_key.session).await.unwrap();
    assert_eq!(ask(&other, "$ ls; echo twin > note").await, "it says: [exit code 0, no output]");
    assert!(ask(&acme_key, "$ cat note").await.ends_with("acme\n"));
    assert_eq!(ask(&other, "$ cat note").await, "it says: twin\n");
    runtime.delete(&twin.tenant, twin.session).await.unwrap();
    assert_eq!(ask(&acme_key, "$ cat note").await, "it says: acme\n");
    assert!(say(&keep, "still here").await.1.ends_with("still here"));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn without_a_data_directory_everything_ends_with_the_process() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let options = fixture.options().ephemeral();
    let runtime = conjure::Runtime::spawn(options.clone()).await.unwrap();
    let session = runtime.open(spec()).await.unwrap();
    assert_eq!(ask(&session, "$ echo here > note; cat note").await, "it says: here\n");
    assert!(!fixture.data().join("journal").exists());
    runtime.shutdown(soon()).await.unwrap();
    drop((session, runtime));
    let workspaces = fixture.data().join("tenants/acme/workspaces");
    assert_eq!(std::fs::read_dir(workspaces).unwrap().count(), 0);
}

//! Two tenants with interleaved sessions and secrets everywhere: in skills, artifacts, URL contents, the environment,
//! prompts, answers, files, and among the redacted values. Both take their sandboxes from one pool. No tenant's data reaches
//! another's model, subscribers, commands or directories, and no session is found by another tenant.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use conjure::artifact::RegistrationSource;
use conjure::config::ExecutorKind;
use conjure::model::BlockKind;
use conjure::runtime::{CatalogKey, CatalogName, CatalogSpec};
use conjure::skill::Scope;
use conjure::{
    Block, Request, Response, Runtime, RuntimeError, RuntimeOptions, Session, SessionId, SessionSpec,
    StopReason, Update, Usage, model_fn,
};

use crate::runtime::fixture::{Fixture, ask, soon, tenant};
use crate::runtime::network::fetch::{NumberedServer, permissive_settings, read};
use crate::runtime::sandboxes::pools::{pool_settings, until};

const TENANTS: [&str; 2] = ["acme", "globex"];

/// The secrets of this tenant; each location has its own.
fn canary(whose: &str, location: &str) -> String {
    format!("canary-{whose}-{location}")
}

/// The tenants whose canaries are in a text.
fn seen_in(text: &str) -> BTreeSet<&'static str> {
    TENANTS.into_iter().filter(|whose| text.contains(&format!("canary-{whose}-"))).collect()
}

/// All that models were sent, by turns.
type SentRequests = Arc<Mutex<Vec<String>>>;

/// Runs what it is told to, and repeats what came of it, with a canary of whoever it was told to work for.
fn answer(request: &Request, sent: &SentRequests) -> Response {
    sent.lock()
        .unwrap()
        .push(format!("{:?} {:?} {:?}", request.instructions, request.tools, request.messages));
    let last = request.messages.last().unwrap();
    let result = last.content.iter().find_map(|block| match block.kind() {
        BlockKind::ToolResult { text, .. } => Some(text.clone()),
        _ => None,
    });
    let (content, stop_reason) = match result {
        Some(result) => (Block::text(format!("it says: {result}")), StopReason::EndTurn),
        None => {
            let input = serde_json::json!({"command": last.text(), "description": "as it was asked"});
            let id = format!("toolu_{}", request.messages.len());
            (Block::tool_use(id, "bash_tool", &input), StopReason::ToolUse)
        }
    };
    let usage = Usage { input_tokens: 1, output_tokens: 1, ..Usage::default() };
    Response { usage, ..Response::new(vec![content], stop_reason) }
}

/// A catalog of this tenant's own, with a skill of the same name as the other's.
async fn register(runtime: &Runtime, fixture: &Fixture, whose: &str) {
    let dir = fixture.dir().join(format!("skills-of-{whose}")).join("ledger");
    std::fs::create_dir_all(dir.join("scripts")).unwrap();
    let (body, script) = (canary(whose, "body"), canary(whose, "script"));
    let text = format!(
        "---\nname: ledger\ndescription: Keeps the {} books.\n---\n{body}\n",
        canary(whose, "description")
    );
    std::fs::write(dir.join("SKILL.md"), text).unwrap();
    std::fs::write(dir.join("scripts/run.sh"), format!("echo {script}\n")).unwrap();
    let key = CatalogKey::for_tenant(tenant(whose), CatalogName::new("books").unwrap());
    let spec = CatalogSpec::of([Scope::named(dir.parent().unwrap())]);
    runtime.registry().register(key, spec, soon()).await.unwrap();
}

fn spec(whose: &str, url: &str) -> SessionSpec {
    SessionSpec::new(tenant(whose))
        .catalog("books")
        .base_prompt(canary(whose, "prompt"))
        .environment("BOOKS", canary(whose, "environment"))
        .secret("VAULT", canary(whose, "secret"))
        .metadata("note", canary(whose, "metadata"))
        .artifact("report", RegistrationSource::content(canary(whose, "artifact"), "text/plain"))
        .artifact("page", RegistrationSource::url(url))
}

/// A command that prints everything it can read: its files and variables, and those of all visible processes.
const LOOK: &str = "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; mount; \
    grep -rhs canary- /workspace /mnt /artifacts /tmp /var /run /home /root /etc /dev/shm 2>/dev/null; \
    sh /mnt/skills/ledger/scripts/run.sh; ls -a / /mnt/skills /workspace /tmp; true";

/// All events of a session, as JSON lines.
async fn recorded_events(session: &Session) -> String {
    let events = session.snapshot().await.unwrap().events;
    let mut subscription = session.subscribe(0).await.unwrap();
    let mut lines = String::new();
    loop {
        if let Update::Recorded(event) = subscription.next().await.unwrap() {
            lines.push_str(&event.to_line());
            if event.seq + 1 >= events {
                return lines;
            }
        }
    }
}

/// The contents of all files in a directory.
fn contents(dir: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            text.push_str(&contents(&path));
        } else {
            text.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()));
        }
    }
    text
}

async fn nothing_crosses(fixture: Fixture) {
    let sent = SentRequests::default();
    let model = {
        let sent = Arc::clone(&sent);
        model_fn(move |request: Request| {
            let answer = answer(&request, &sent);
            async move { Ok(answer) }
        })
    };
    // One address leads each tenant to something else, which is kept for that tenant alone.
    let web = NumberedServer::responding(|number| canary(TENANTS[(number as usize - 1) % 2], "page")).await;
    let options = RuntimeOptions::from(fixture.config()).model("echo", model);
    let options = options.fetch(web.fetch(&fixture)).pool(pool_settings(fixture.kind, 2));
    let runtime = Runtime::spawn(options.clone()).await.unwrap();
    let mut sessions = Vec::new();
    for whose in TENANTS {
        register(&runtime, &fixture, whose).await;
    }
    for round in 0..2 {
        for whose in TENANTS {
            let session = runtime.open(spec(whose, &web.url())).await.unwrap();
            assert_eq!(read(&session, "file://page").await, canary(whose, "page"));
            sessions.push((whose, round, session));
        }
    }
    assert_eq!(web.request_count(), 2, "each once");
    // Some have what was ready before anybody came.
    until(&runtime, |pool| pool.ready == 2).await;
    // Each leaves something behind, then looks around; all at once, twice.
    for _ in 0..2 {
        let turns = sessions.iter().map(|(whose, round, session)| async move {
            let location = format!("file-{round}");
            let leave =
                format!("echo {} | tee -a note /tmp/note > /dev/null; {LOOK}", canary(whose, &location));
            let reply = ask(session, &leave).await;
            for own in ["environment", "script", "artifact", &location] {
                assert!(reply.contains(&canary(whose, own)), "{whose} misses its {own}: {reply}");
            }
            assert!(!reply.contains(&canary(whose, "secret")), "{reply}");
            assert_eq!(seen_in(&reply), BTreeSet::from([*whose]), "{reply}");
        });
        futures_util::future::join_all(turns).await;
    }

    assert!(runtime.pools()[0].hits >= 2, "{:?}", runtime.pools());

    // Each model request contains data of one tenant, and subscribers get events of their own tenant.
    for request in sent.lock().unwrap().iter() {
        assert_eq!(seen_in(request).len(), 1, "{request}");
        assert!(!request.contains("-secret"), "{request}");
    }
    assert!(sent.lock().unwrap().len() >= 16);
    for (whose, round, session) in &sessions {
        let events = recorded_events(session).await;
        assert_eq!(seen_in(&events), BTreeSet::from([*whose]), "{events}");
        assert!(!events.contains(&canary(whose, "secret")), "{events}");
        // Nor do two sessions of a tenant see each other's files.
        assert!(!events.contains(&canary(whose, &format!("file-{}", 1 - round))), "{events}");
    }

    // No id of the one is any of the other's, here or after a restart, whatever is asked for.
    let ids: BTreeSet<SessionId> = sessions.iter().map(|(.., session)| session.id()).collect();
    assert_eq!(ids.len(), 4);
    let foreign = |whose: &str| TENANTS.into_iter().find(|other| *other != whose).unwrap();
    let is_unknown = |error: &RuntimeError| matches!(error, RuntimeError::NotFound { .. });
    for (whose, _, session) in &sessions {
        let other = tenant(foreign(whose));
        assert!(is_unknown(&runtime.session(&other, session.id()).await.unwrap_err()));
        assert!(is_unknown(&runtime.delete(&other, session.id()).await.unwrap_err()));
    }
    runtime.shutdown(soon()).await.unwrap();
    drop((runtime, sessions));

    // On the disk each has a directory, with nothing of the other's in it, caches among it; no secret is anywhere.
    for whose in TENANTS {
        let stored = contents(&fixture.data().join("tenants").join(whose));
        assert_eq!(seen_in(&stored), BTreeSet::from([whose]));
        assert!(stored.contains(&canary(whose, "page")), "fetched content");
    }
    let all = contents(&fixture.data());
    assert!(all.contains(&canary("acme", "prompt")) && !all.contains("-secret"));

    let runtime = Runtime::spawn(options).await.unwrap();
    for whose in TENANTS {
        let list = runtime.sessions(&tenant(whose), None, 100).await.unwrap();
        assert_eq!(list.sessions.len(), 2);
        assert_eq!(seen_in(&format!("{list:?}")), BTreeSet::from([whose]));
        for summary in list.sessions {
            let other = tenant(foreign(whose));
            assert!(is_unknown(&runtime.session(&other, summary.id).await.unwrap_err()));
        }
    }
    // A tenant that comes later finds nothing.
    let newcomer = runtime.open(SessionSpec::new(tenant("initech")).without_skills()).await.unwrap();
    let reply = ask(&newcomer, &LOOK.replace("sh /mnt", "ls /mnt")).await;
    assert_eq!(seen_in(&reply), BTreeSet::new(), "{reply}");
    runtime.shutdown(soon()).await.unwrap();
}

#[cfg(not(engines))]
#[tokio::test]
async fn tenants_are_isolated_in_jails() {
    if !test_support::has_user_namespaces() {
        return;
    }
    nothing_crosses(Fixture::with(ExecutorKind::Jail, permissive_settings())).await;
}

#[cfg(engines)]
#[test]
fn tenants_are_isolated_in_containers() {
    let Some(image) = crate::image::test_image() else { return };
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let settings = conjure::Settings {
        artifacts: permissive_settings().artifacts,
        ..crate::runtime::fixture::of_containers(&image)
    };
    threads.block_on(nothing_crosses(Fixture::with(ExecutorKind::Docker, settings)));
}

//! `conjure skills push` and `conjure skills remote` against the fake of the service, over HTTP.

use std::fs;
use std::path::{Path, PathBuf};

use conjure_anthropic::fake::{FakeMessages, FakeMessagesBuilder, Refusal, Reply};
use conjure_anthropic::hosted::Upload;
use conjure_anthropic::{Client, Config};
use conjure_conversation::ApiErrorKind;
use serde_json::Value;

use crate::support::{Conjure, Finished, eventually};

/// No key of anybody, and long enough to be found wherever it leaks.
const KEY: &str = "sk-ant-canary-0123456789";

/// A service, a directory of skills, and a data directory.
struct Fixture {
    fake: FakeMessages,
    temp: tempfile::TempDir,
    // Dropped after the fake.
    runtime: tokio::runtime::Runtime,
}

impl Fixture {
    fn start(builder: FakeMessagesBuilder) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let fake = runtime.block_on(builder.start()).unwrap();
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("skills")).unwrap();
        Self { fake, temp, runtime }
    }

    fn with(skills: &[&str]) -> Self {
        let fixture = Self::start(FakeMessages::builder());
        skills.iter().for_each(|name| fixture.write(name, "One."));
        fixture
    }

    fn skills(&self) -> PathBuf {
        self.temp.path().join("skills")
    }

    fn data(&self) -> PathBuf {
        self.temp.path().join("data")
    }

    fn write(&self, name: &str, description: &str) {
        let dir = self.skills().join(name);
        fs::create_dir_all(&dir).unwrap();
        let main = format!("---\nname: {name}\ndescription: {description}\n---\nBody\n");
        fs::write(dir.join("SKILL.md"), main).unwrap();
    }

    /// `conjure skills …`, with the key.
    fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Conjure {
        Conjure::new(["skills"].into_iter().chain(args))
            .env("ANTHROPIC_API_KEY", KEY)
            .env("ANTHROPIC_BASE_URL", self.fake.base_url())
            .env("CONJURE_DATA", self.data())
    }

    fn push(&self, args: &[&str]) -> Finished {
        let finished = self.run(["push"]).arg(self.skills()).args(args).finish();
        assert!(!finished.stdout.contains(KEY) && !finished.stderr.contains(KEY), "{finished:?}");
        finished
    }

    /// Which skill the service has under this title.
    fn id(&self, title: &str) -> String {
        let listed = self.run(["remote", "list", "--json", "--source", "custom"]).finish().code(0);
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        let mut of_title = listed.as_array().unwrap().iter().filter(|skill| skill["title"] == title);
        let id = of_title.next().unwrap()["id"].as_str().unwrap().to_owned();
        assert!(of_title.next().is_none(), "there are several: {listed}");
        id
    }

    /// The methods of what was asked since, but for what only reads.
    fn changes(&self) -> Vec<String> {
        let requests = self.fake.requests();
        requests.iter().map(|request| request.method().to_owned()).filter(|method| method != "GET").collect()
    }

    fn refuse(&self, status: u16, kind: &str) {
        let refusal = Refusal::new(ApiErrorKind::from(kind.to_owned()), format!("so it is, {KEY}"));
        let reply = Reply::error(refusal.with_status(status)).with_header("x-should-retry", "false");
        self.fake.add_hosted_fault(reply.with_request_id("req_7").with_header("retry-after", "90"));
    }

    /// The text without what differs from run to run: paths, addresses, ids and the numbers of versions.
    fn normalized(&self, text: &str) -> String {
        let text = text
            .replace(&*self.temp.path().canonicalize().unwrap().to_string_lossy(), "[TEMP]")
            .replace(&*self.temp.path().to_string_lossy(), "[TEMP]")
            .replace(&self.fake.base_url(), "[SERVICE]");
        let number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        let steady = |word: &str| match word {
            word if word.starts_with("skill_") => "[ID]".to_owned(),
            word if word.len() > 8 && number(word) => "[VERSION]".to_owned(),
            word => word.to_owned(),
        };
        text.split(' ')
            .map(|word| match word.split_once('\n') {
                Some((end, beginning)) => format!("{}\n{}", steady(end), steady(beginning)),
                None => steady(word),
            })
            .collect::<Vec<_>>()
            .join(" ")
    }
}

#[test]
fn a_push_uploads_and_reports_changes() {
    let fixture = Fixture::with(&["greeting", "report"]);
    let planned = fixture.push(&["--dry-run"]).code(0);
    insta::assert_snapshot!("hosted_push_dry_run", planned.stdout);
    assert!(fixture.changes().is_empty() && !fixture.data().exists());
    insta::assert_snapshot!(
        "hosted_push_first",
        fixture.normalized(&fixture.push(&[]).code(0).says("uploading").stdout)
    );
    let second = fixture.push(&[]).code(0).does_not_say("uploading");
    insta::assert_snapshot!("hosted_push_again", fixture.normalized(&second.stdout));
    assert_eq!(fixture.changes(), ["POST", "POST"]);

    fixture.write("report", "Two.");
    let planned = fixture.push(&["--dry-run"]).code(0);
    insta::assert_snapshot!("hosted_push_changed_dry_run", fixture.normalized(&planned.stdout));
    insta::assert_snapshot!("hosted_push_changed", fixture.normalized(&fixture.push(&[]).code(0).stdout));
    assert_eq!(fixture.changes().len(), 3);
    // The record is lost, as after a crash behind an upload.
    fs::remove_file(fixture.data().join("hosted/skills.json")).unwrap();
    assert_eq!(fixture.push(&[]).code(0).stdout.matches("unchanged").count(), 2);
    assert_eq!(fixture.changes().len(), 3);
    let record = fs::read_to_string(fixture.data().join("hosted/skills.json")).unwrap();
    assert!(!record.contains(KEY) && record.contains(&fixture.fake.base_url()), "{record}");
}

#[test]
fn invalid_or_missing_skills_are_reported_and_nothing_is_deleted() {
    let fixture = Fixture::with(&["good", "left"]);
    fixture.push(&[]).code(0);
    fs::rename(fixture.skills().join("left"), fixture.skills().join("renamed")).unwrap();
    fixture.write("renamed", "One.");
    fixture.write("bad", "One.");
    fs::write(fixture.skills().join("bad/SKILL.md"), "---\nname: bad\n---\n").unwrap();
    let pushed = fixture.push(&[]).code(1);
    insta::assert_snapshot!("hosted_push_invalid", fixture.normalized(&pushed.stdout));
    assert_eq!(fixture.changes(), ["POST"; 3]);
    let stdout: Value = serde_json::from_str(&fixture.push(&["--json"]).code(1).stdout).unwrap();
    let all = |key: &str| -> Vec<String> {
        let skills = stdout["skills"].as_array().unwrap().iter();
        skills.map(|skill| skill[key].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(all("name"), ["bad", "good", "renamed"]);
    assert_eq!(all("status"), ["failed", "unchanged", "unchanged"]);
    assert!(stdout["skills"][0]["error"].as_str().unwrap().contains("description"), "{stdout}");
    assert_eq!(stdout["skills"][1]["id"], fixture.id("good"));
    assert!(stdout["skills"][1]["version"].is_string() && stdout["skills"][1]["error"].is_null(), "{stdout}");
    assert_eq!(stdout["absent"][0]["name"], "left");
    assert_eq!(stdout["dry_run"], false);
    assert!(Path::new(&all("path")[0]).is_absolute());
}

#[test]
fn the_skills_of_the_service_are_listed_and_deleted() {
    let fixture = Fixture::with(&["greeting", "report"]);
    fixture.push(&[]).code(0);
    fixture.write("greeting", "Two.");
    fixture.push(&[]).code(0);
    let listed = fixture.run(["remote", "list"]).finish().code(0);
    let listed = fixture.normalized(&listed.stdout);
    let (own, built_in): (Vec<&str>, Vec<&str>) = listed.lines().partition(|line| line.contains("custom"));
    // Both were uploaded at once.
    assert!(own.len() == 2 && listed.lines().take(2).eq(own.iter().copied()), "{listed}");
    assert!(listed.contains("[ID]  custom     version [VERSION]  greeting\n"), "{listed}");
    insta::assert_snapshot!("hosted_list_built_in", built_in.join("\n"));
    let built_in = fixture.run(["remote", "list", "--source", "anthropic"]).finish().code(0);
    assert_eq!(built_in.stdout.lines().count(), 4);
    let (greeting, report) = (fixture.id("greeting"), fixture.id("report"));

    // One that is not there does not hold up the other.
    let deleted = fixture.run(["remote", "delete", "skill_none", &greeting]).finish().code(2);
    assert_eq!(deleted.stdout, format!("deleted {greeting} (greeting), with 2 versions\n"));
    insta::assert_snapshot!("hosted_delete_stderr", deleted.stderr);
    let record = fs::read_to_string(fixture.data().join("hosted/skills.json")).unwrap();
    assert!(!record.contains(&greeting) && record.contains(&report), "{record}");
    assert!(fixture.push(&[]).code(0).stdout.contains("created"));
    // Those of the service are not ours.
    fixture.run(["remote", "delete", "xlsx"]).finish().code(1).says("403");
    fixture.run(["remote", "delete", ".."]).finish().code(2);
    fixture.run(["remote", "delete"]).finish().code(2);
}

#[test]
fn a_skill_above_the_limit_is_not_uploaded() {
    let fixture = Fixture::with(&["greeting"]);
    let large = fixture.skills().join("greeting/large.bin");
    fs::File::create(&large).unwrap().set_len(30_000_001).unwrap();
    insta::assert_snapshot!("hosted_push_too_large", fixture.normalized(&fixture.push(&[]).code(1).stdout));
    assert!(fixture.changes().is_empty());
    fs::remove_file(&large).unwrap();
    fixture.push(&[]).code(0);
}

#[test]
fn a_failed_skill_is_reported_with_a_hint_and_others_continue() {
    let fixture = Fixture::with(&["greeting", "report"]);
    // Somebody has uploaded it twice under its name.
    for _ in 0..2 {
        fixture.runtime.block_on(async {
            let client =
                Client::new(&Config::new(KEY.into()).with_base_url(fixture.fake.base_url())).unwrap();
            let upload = Upload::new().with_title("greeting");
            client.skills().upload(fixture.skills().join("greeting"), upload).await.unwrap();
        });
    }
    let pushed = fixture.push(&[]).code(1).says("hint: `conjure skills remote delete ID` deletes one\n");
    assert!(pushed.stdout.starts_with("greeting  failed     the service has 2 skills of this title (skill_"));
    assert!(pushed.stdout.contains("report    created    skill_"), "{pushed:?}");
    let stdout: Value = serde_json::from_str(&fixture.push(&["--json", "--dry-run"]).code(1).stdout).unwrap();
    assert_eq!(
        (stdout["skills"][0]["status"].as_str(), &stdout["skills"][0]["id"]),
        (Some("failed"), &Value::Null)
    );
    assert_eq!(
        (stdout["skills"][1]["status"].as_str(), stdout["dry_run"].as_bool()),
        (Some("unchanged"), Some(true))
    );
}

#[test]
fn each_service_failure_has_its_message_and_exit_code() {
    let fixture = Fixture::with(&["greeting"]);
    let mut message = String::new();
    for (status, kind, code) in [
        (401, "authentication_error", 2),
        (403, "permission_error", 1),
        (404, "not_found_error", 2),
        (409, "conflict_error", 1),
        (413, "request_too_large", 1),
        (429, "rate_limit_error", 1),
        (500, "api_error", 1),
        (529, "overloaded_error", 1),
    ] {
        fixture.refuse(status, kind);
        let failed = fixture.push(&[]).code(code);
        assert_eq!(failed.stdout, "");
        message.push_str(&failed.stderr);
    }
    insta::assert_snapshot!("hosted_failures", message);
    assert!(fixture.changes().is_empty());
}

#[test]
fn problems_are_reported_before_any_request() {
    let fixture = Fixture::with(&["greeting"]);
    let keyless = || {
        Conjure::new(["skills", "push"])
            .arg(fixture.skills())
            .env("ANTHROPIC_BASE_URL", fixture.fake.base_url())
            .env("CONJURE_DATA", fixture.data())
    };
    let mut stderr = keyless().finish().code(2).stderr;
    stderr += &keyless().env("ANTHROPIC_API_KEY", "two words").finish().code(2).stderr;
    stderr += &fixture.run(["push", "no/such/directory"]).finish().code(2).stderr;
    fixture.push(&[]).code(0);
    let record = fixture.data().join("hosted/skills.json");
    fs::write(&record, "{\"format\": 1, \"accounts\": 7}").unwrap();
    stderr += &fixture.push(&[]).code(2).stderr;
    fs::remove_file(&record).unwrap();
    let lock = fs::File::open(record.with_extension("lock")).unwrap();
    lock.try_lock().unwrap();
    stderr += &fixture.push(&[]).code(1).stderr;
    drop(lock);
    // A process that another test is just starting has what was open here until it runs its program.
    eventually("nobody has the lock", || {
        fs::File::open(record.with_extension("lock")).unwrap().try_lock_shared().is_ok()
    });
    insta::assert_snapshot!("hosted_missing", fixture.normalized(&stderr));
    assert_eq!(fixture.changes(), ["POST"]);
    let empty = fixture.temp.path().join("empty");
    fs::create_dir(&empty).unwrap();
    fixture.run(["push"]).arg(&empty).finish().code(0).says("no skills found in");
    let without_server = Conjure::new(["skills", "remote", "list"])
        .env("ANTHROPIC_API_KEY", KEY)
        .env("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
        .finish();
    without_server.code(1).says("hint: is the network there");
}

#[test]
fn help_explains_the_key_and_the_data_directory_is_configurable() {
    insta::assert_snapshot!(
        "hosted_push_help",
        Conjure::new(["skills", "push", "--help"]).finish().code(0).stdout
    );
    let fixture = Fixture::with(&["greeting"]);
    let data = fixture.temp.path().join("other");
    fixture.run(["push"]).arg(fixture.skills()).arg("--data").arg(&data).finish().code(0);
    assert!(data.join("hosted/skills.json").exists() && !fixture.data().exists());
    let id = fixture.id("greeting");
    fixture.run(["remote", "delete", &id]).arg("--data").arg(&data).finish().code(0);
    assert!(!fs::read_to_string(data.join("hosted/skills.json")).unwrap().contains(&id));
}

//! `conjure run --hosted` against the fake of the service, over HTTP: attachments are uploaded, and outputs are downloaded.

use conjure_anthropic::fake::{FakeMessages, FakeToolRun, Reply};
use serde_json::Value;

use crate::support::Conjure;

struct Fixture {
    fake: FakeMessages,
    temp: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Fixture {
    fn start(turns: Vec<Reply>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let fake = runtime.block_on(FakeMessages::builder().hosting().turns(turns).start()).unwrap();
        Self { fake, temp: tempfile::tempdir().unwrap(), _runtime: runtime }
    }

    fn run(&self, args: &[&str]) -> Conjure {
        self.conjure(&["run", "--model", "m", "--hosted", "xlsx,pptx@latest"]).args(args)
    }

    fn conjure(&self, args: &[&str]) -> Conjure {
        Conjure::new(args)
            .env("ANTHROPIC_API_KEY", "sk-ant-any")
            .env("ANTHROPIC_BASE_URL", self.fake.base_url())
            .env("CONJURE_DATA", self.temp.path().join("data"))
    }

    /// The id of its only session.
    fn session(&self) -> String {
        let listed = self.conjure(&["sessions", "list", "--format", "json"]).finish().code(0);
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        listed["sessions"][0]["id"].as_str().unwrap().to_owned()
    }
}

#[test]
fn a_file_is_uploaded_and_outputs_are_downloaded() {
    let tool_run = FakeToolRun::new("python make.py").with_file("table.xlsx", "cells").saying("Made it.");
    let fixture = Fixture::start(vec![FakeToolRun::new("python make.py").paused().into(), tool_run.into()]);
    let (sales, out) = (fixture.temp.path().join("sales.csv"), fixture.temp.path().join("out"));
    std::fs::write(&sales, "region,2024\n").unwrap();
    let finished = fixture
        .run(&["--attach"])
        .arg(&sales)
        .arg("--out")
        .arg(&out)
        .arg("Make a table of it.")
        .finish()
        .code(0);
    assert_eq!(finished.stdout, "Made it.\n");
    assert!(finished.stderr.contains("the model's service runs xlsx, pptx"), "{}", finished.stderr);
    assert!(!finished.stderr.contains("sandbox"), "nothing runs here: {}", finished.stderr);
    assert_eq!(std::fs::read_to_string(out.join("table.xlsx")).unwrap(), "cells");
    let sent = fixture.fake.requests().into_iter().find(|request| request.path().starts_with("/v1/messages"));
    let sent: Value = serde_json::from_slice(sent.unwrap().body()).unwrap();
    assert_eq!(sent["container"]["skills"][1]["skill_id"], "pptx");
    assert!(sent["messages"][0]["content"].to_string().contains("container_upload"), "{sent}");
    let system_prompt = sent["system"].to_string();
    assert!(
        system_prompt.contains("The container of code execution has a copy of a user artifact"),
        "{system_prompt}"
    );
    assert!(!system_prompt.contains("URI"), "nothing takes one: {system_prompt}");
}

#[test]
fn options_that_need_a_workspace_fail_with_a_hint() {
    let fixture = Fixture::start(Vec::new());
    let finished = fixture.run(&["--file", "Cargo.toml", "Hi"]).finish().code(2);
    assert!(
        finished.stderr.contains("`--attach` gives the file to the model's service"),
        "{}",
        finished.stderr
    );
    assert!(fixture.fake.requests().is_empty());
    let nine = ["a", "b", "c", "d", "e", "f", "g", "h", "i"].join(",");
    let finished = fixture.run(&["--hosted", &nine, "Hi"]).finish();
    assert!(finished.stderr.contains("are too many for one request, which takes 8"), "{}", finished.stderr);
    let finished = fixture.run(&["--hosted", "docx@1", "Hi"]).finish().code(1);
    assert!(finished.stderr.contains("skill `docx` of version `1` not found"), "{}", finished.stderr);
    let finished = fixture.run(&["--hosted", "a/b", "Hi"]).finish().code(2);
    assert!(finished.stderr.contains("a hosted skill is `ID` or `ID@VERSION`"), "{}", finished.stderr);
}

#[test]
fn a_hosted_session_continues_with_another_prompt() {
    let tool_run = |text: &str| FakeToolRun::new("python make.py").saying(text).into();
    let fixture = Fixture::start(vec![tool_run("Made it."), tool_run("By quarter, too.")]);
    fixture.run(&["Make a table."]).finish().code(0);
    let id = fixture.session();
    let refused =
        fixture.conjure(&["sessions", "resume", &id, "--file", "Cargo.toml", "This, too."]).finish();
    assert!(refused.code(2).stderr.contains("`--file`: there is no workspace to copy it to"));
    let finished = fixture.conjure(&["sessions", "resume", &id, "And by quarter?"]).finish().code(0);
    assert_eq!(finished.stdout, "By quarter, too.\n");
    assert!(finished.stderr.contains("the model's service runs xlsx, pptx"), "{}", finished.stderr);
    assert!(!finished.stderr.contains("working in"), "nothing works here: {}", finished.stderr);
}

/// `--model` is for good, where no turn is under way.
#[test]
fn another_model_stays_with_the_session() {
    let tool_run = |text: &str| FakeToolRun::new("python make.py").saying(text).into();
    let fixture = Fixture::start(["One.", "Two.", "Three."].map(tool_run).into());
    fixture.run(&["Make a table."]).finish().code(0);
    let id = fixture.session();
    let resume = ["sessions", "resume", &id];
    fixture.conjure(&resume).args(["--model", "other", "Once more."]).finish().code(0);
    assert_eq!(fixture.conjure(&resume).arg("And again.").finish().code(0).stdout, "Three.\n");
    let requests = fixture.fake.requests();
    let sent = requests.iter().filter(|request| request.path().starts_with("/v1/messages"));
    let models: Vec<Value> = sent
        .map(|request| serde_json::from_slice::<Value>(request.body()).unwrap()["model"].clone())
        .collect();
    assert_eq!(models, ["m", "other", "other"]);
    let exported = fixture.conjure(&["sessions", "export", &id]).finish().code(0).stdout;
    assert_eq!(
        exported.matches(r#""type":"session.model_changed","from":"m","to":"other""#).count(),
        1,
        "{exported}"
    );
    let show_output = fixture.conjure(&["sessions", "show", &id]).finish().code(0).stdout;
    assert!(
        show_output.lines().any(|line| line.starts_with("model") && line.ends_with("other")),
        "{show_output}"
    );
}

#[test]
fn the_newest_of_the_files_of_one_name_is_copied() {
    let tool_run =
        |content: &str| FakeToolRun::new("python make.py").with_file("table.xlsx", content.to_owned());
    let versions = (0..3).map(|version| tool_run(&version.to_string()).paused().into());
    let fixture = Fixture::start(versions.chain([tool_run("corrected").saying("Made it.").into()]).collect());
    let out = fixture.temp.path().join("out");
    let finished = fixture.run(&["--out"]).arg(&out).arg("Make a table.").finish().code(0);
    assert_eq!(std::fs::read_to_string(out.join("table.xlsx")).unwrap(), "corrected");
    let skipped_count = finished.stderr.matches("an older `table.xlsx` is not copied").count();
    assert_eq!(skipped_count, 3, "{}", finished.stderr);
    assert!(!finished.stderr.contains("not overwritten"), "{}", finished.stderr);
}

#[test]
fn files_at_the_service_are_listed() {
    let tool_run =
        |name: &str, text: &str| FakeToolRun::new("make").with_file(name, "cells").saying(text).into();
    let fixture =
        Fixture::start(vec![tool_run("table.xlsx", "Made it."), tool_run("quarters.xlsx", "That, too.")]);
    let finished = fixture.run(&["Make a table."]).finish().code(0);
    let (table, quarters) = ("       5 B  table.xlsx  file_", "       5 B  quarters.xlsx  file_");
    assert!(finished.stderr.contains(table), "{}", finished.stderr);
    assert!(finished.stderr.contains("`--out DIR` copies them"), "{}", finished.stderr);
    let (id, out) = (fixture.session(), fixture.temp.path().join("out"));
    let resumed = fixture.conjure(&["sessions", "resume", &id, "And by quarter?", "--out"]).arg(&out);
    let resumed = resumed.finish().code(0);
    assert!(resumed.stderr.contains(quarters), "{}", resumed.stderr);
    assert!(!resumed.stderr.contains(table), "it existed before: {}", resumed.stderr);
    assert!(!resumed.stderr.contains("`--out DIR`"), "{}", resumed.stderr);
    // Both are copied: what was made before could be had in no other way.
    for name in ["table.xlsx", "quarters.xlsx"] {
        assert_eq!(std::fs::read_to_string(out.join(name)).unwrap(), "cells");
    }
    let show_output = fixture.conjure(&["sessions", "show", &id]).finish().code(0).stdout;
    assert!(show_output.find(table).unwrap() < show_output.find(quarters).unwrap(), "{show_output}");
    assert!(show_output.contains("hosted     xlsx latest"), "{show_output}");
}

#[test]
fn files_at_the_service_are_deleted_with_the_session_or_reported() {
    let tool_run = || FakeToolRun::new("make").with_file("table.xlsx", "cells").saying("Made it.").into();
    let fixture = Fixture::start(vec![tool_run(), tool_run()]);
    fixture.run(&["Make a table."]).finish().code(0);
    let deleted = fixture.conjure(&["sessions", "delete", &fixture.session()]).finish().code(0);
    assert!(
        deleted.stderr.contains("is forgotten") && !deleted.stderr.contains("left"),
        "{}",
        deleted.stderr
    );
    assert!(fixture.fake.files().is_empty());
    // Without the key there is nobody who could.
    fixture.run(&["Make a table."]).finish().code(0);
    let id = fixture.session();
    let deleted = fixture.conjure(&["sessions", "delete", &id]).env("ANTHROPIC_API_KEY", "").finish().code(0);
    let message = format!("1 file of {id} is left at its model's service: ");
    assert!(
        deleted.stderr.contains("is forgotten") && deleted.stderr.contains(&message),
        "{}",
        deleted.stderr
    );
    assert_eq!(fixture.fake.files().len(), 1);
}

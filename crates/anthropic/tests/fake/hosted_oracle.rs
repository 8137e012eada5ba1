//! The official SDK of each profile as a client of what the fake hosts.

use conjure_anthropic::ApiProfile;
use conjure_anthropic::fake::{FakeMessages, FakeToolRun, Reply};
use serde_json::{Value, json};
use test_support::Python;

use crate::oracle::oracle;
use crate::support::{KEY, start};

fn turns() -> [Reply; 2] {
    let tool_run =
        FakeToolRun::new("python make.py").with_file("report.xlsx", "sheets").with_file("a.txt", "notes");
    [FakeToolRun::new("sleep 60").paused().into(), tool_run.with_stdout("ok\n").saying("Here it is.").into()]
}

async fn check(python: &Python, profile: ApiProfile) {
    for stream in [false, true] {
        let fake = start(FakeMessages::builder().key(KEY).profile(profile).hosting().turns(turns())).await;
        let is_current = profile == ApiProfile::Current;
        let input = json!({"url": fake.base_url(), "key": KEY, "is_current": is_current, "stream": stream});
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/hosted_oracle.py");
        let mut seen = python.run_json(&[program], &input).await;
        let seen = seen.as_object_mut().unwrap();
        for (name, class, words) in [
            ("gone", "NotFoundError", "Container container_x not found"),
            ("unknown", "BadRequestError", "skill `skill_x`"),
            ("versioned", "BadRequestError", "Delete all versions first"),
            ("private", "BadRequestError", "not downloadable"),
            ("nothing", "NotFoundError", "file_x"),
            ("rootless", "BadRequestError", "same top-level directory"),
            (
                "too_large",
                if is_current { "ContentTooLargeError" } else { "RequestTooLargeError" },
                "maximum size",
            ),
        ] {
            let refused = seen.remove(name).unwrap();
            assert_eq!(refused[0], class, "{refused}");
            assert!(refused[1].as_str().unwrap().contains(words), "{refused}");
        }
        let loaded = seen.remove("loaded").unwrap();
        assert_eq!(loaded[0][0], "xlsx");
        let expected = json!({
            "title": "T \u{e4}", "is_latest": true, "described": "Second.", "versions": ["Second.", "First."],
            "custom": 4, "anthropic": ["docx", "pdf", "pptx", "xlsx"], "is_resolved": true,
            "file": ["data.csv", "text/csv", 4, false], "stops": ["pause_turn", "end_turn"],
            "same_container": true, "names": ["report.xlsx", "a.txt"], "made": ["sheets", "notes"],
            "text": "Here it is.", "files": 3, "deleted": ["skill_deleted", "file_deleted"],
        });
        assert_eq!(Value::Object(std::mem::take(seen)), expected, "{profile:?}");
    }
}

#[tokio::test]
async fn the_sdk_of_the_current_profile_works_against_the_fake() {
    if let Some(python) = oracle().await {
        check(&python, ApiProfile::Current).await;
    }
}

#[tokio::test]
async fn the_sdk_of_the_beta_profile_works_against_the_fake() {
    let check_version = "import anthropic; assert anthropic.__version__ < '1'";
    let found = Python::find("CONJURE_ORACLE_PYTHON_BETA", check_version, "`anthropic==0.97.0`").await;
    if let Some(python) = found {
        check(&python, ApiProfile::Beta).await;
    }
}

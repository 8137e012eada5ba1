//! A push whose service reports its content incompletely or wrongly: uploads are not repeated endlessly.

use std::fs;
use std::sync::{Arc, Mutex};

use conjure_anthropic::Client;
use conjure_anthropic::hosted::{PushResult, SkillFailure, SkillSync};
use serde_json::{Value, json};

use crate::server::{Part, Recorded, Server, answer, error};
use crate::support::config;

fn record(value: &Value) -> Vec<u8> {
    answer("200 OK", &[("content-type", "application/json")], &value.to_string())
}

/// A service with one skill `a`, which gives its files out so. Each upload is its next version.
async fn service(content: Vec<u8>) -> Server {
    let versions = Arc::new(Mutex::new(1));
    Server::start(move |_, request: &Recorded| {
        let mut versions = versions.lock().unwrap();
        let version = |number: u32| {
            json!({"id": format!("v_{number}"), "version": number.to_string(), "skill_id": "skill_1", "name": "a",
                "directory": "a", "type": "skill_version"})
        };
        let answered = if request.line.starts_with("POST") {
            *versions += 1;
            record(&version(*versions))
        } else if request.line.contains("/content") {
            content.clone()
        } else if request.line.contains("/versions/") {
            record(&version(*versions))
        } else {
            let skill = json!({"id": "skill_1", "display_title": "a", "latest_version": versions.to_string(),
                "source": "custom", "type": "skill"});
            record(&json!({"data": [skill], "has_more": false, "next_page": null}))
        };
        vec![Part::Bytes(answered)]
    })
    .await
}

/// How three pushes end, the record being lost before the third, and how many of them upload.
async fn pushed(content: Vec<u8>) -> (Vec<Result<&'static str, String>>, usize) {
    let server = service(content).await;
    let temp = tempfile::tempdir().unwrap();
    let skill = temp.path().join("skills/a");
    fs::create_dir_all(&skill).unwrap();
    fs::write(skill.join("SKILL.md"), "---\nname: a\ndescription: One.\n---\n").unwrap();
    let client = Client::new(&config(&server).with_http(|http| http.with_retries(0))).unwrap();
    let sync = SkillSync::new(client.skills(), temp.path().join("data"));
    let mut ends = Vec::new();
    for push in 1..=3 {
        if push == 3 {
            let _ = fs::remove_file(temp.path().join("data/skills.json"));
        }
        let report = sync.push(temp.path().join("skills")).await.unwrap();
        ends.push(match report.skills[0].result() {
            Ok(PushResult::Updated { .. }) => Ok("updated"),
            Ok(PushResult::Unchanged { .. }) => Ok("unchanged"),
            Err(SkillFailure::Service(error)) => Err(format!("{:?}", error.kind())),
            other => panic!("{other:?}"),
        });
    }
    let uploads = server.requests().iter().filter(|request| request.line.starts_with("POST")).count();
    (ends, uploads)
}

#[tokio::test]
async fn incomparable_versions_are_uploaded_once_per_index() {
    let zip = |body: &str| answer("200 OK", &[("content-type", "application/zip")], body);
    let refused = |status: &str, kind: &str| error(status, &[], kind, "no files");
    for content in [
        refused("403 No", "permission_error"),
        refused("404 None", "not_found_error"),
        refused("400 Bad", "invalid_request_error"),
        zip("this is no archive"),
        zip(""),
    ] {
        let text = String::from_utf8_lossy(&content).into_owned();
        let expected = vec![Ok("updated"), Ok("unchanged"), Ok("updated")];
        assert_eq!(pushed(content).await, (expected, 2), "{text}");
    }
}

#[tokio::test]
async fn versions_that_can_be_compared_later_are_not_uploaded() {
    for (content, kind) in [
        (error("500 Oops", &[], "api_error", "internal"), "Service"),
        (error("401 Who", &[], "authentication_error", "no such key"), "WrongKey"),
        (answer("200 OK", &[("content-type", "application/zip"), ("content-length", "9")], "cut"), "Cut"),
    ] {
        let failed = || Err(kind.to_owned());
        assert_eq!(pushed(content).await, (vec![failed(), failed(), failed()], 0));
    }
}

//! The official SDK's requests for skills, files and containers, and ours: the same calls against the same server must
//! be the same lines, headers and bytes, in both profiles.

use std::fs;
use std::io::Write as _;
use std::sync::Arc;

use conjure_anthropic::hosted::{FileId, HostedSkill, SkillId, SkillSource, Upload, VersionId};
use conjure_anthropic::{ApiProfile, Caching, Client, ModelOptions};
use conjure_conversation::Model as _;
use serde_json::{Value, json};

use crate::clock::ManualClock;
use crate::oracle::{BETA, CURRENT};
use crate::server::{Part, Recorded, Server, answer};
use crate::support::{ask, config, drain};

/// The same calls, by the SDK.
const CALLS: &str = r#"
import json, mimetypes, sys
# The table of Python alone, not the machine's.
mimetypes.init(files=[])
mimetypes.add_type("text/markdown", ".md")
from anthropic import Anthropic
url, key, is_current, directory = json.loads(sys.argv[1])
client = Anthropic(api_key=key, base_url=url, max_retries=0)
skills = client.skills if is_current else client.beta.skills
files = client.files if is_current else client.beta.files
title = {"display_name" if is_current else "display_title": "My \u00e4 \"T\""}
names = ["SKILL.md", "assets/t\u00e4ble one.csv", "scripts/a.py"]
parts = [("my-skill/" + name, open(directory + "/my-skill/" + name, "rb").read()) for name in names]
skills.create(files=parts, **title)
skills.create(files=parts)
list(skills.list(source="custom"))
skills.retrieve("skill_1")
skills.versions.create("skill_1", files=parts)
list(skills.versions.list("skill_1"))
skills.versions.retrieve("17", skill_id="skill_1")
skills.versions.delete("17", skill_id="skill_1")
skills.delete("skill_1")
files.upload(file=("d\u00e4ta \"q\" \\ 1.csv", b"1,2\n"))
files.upload(file=("noend", b"\0", "text/x-own"))
files.retrieve_metadata("file_1")
files.download("file_1").read()
files.delete("file_1")
container = {"skills": [{"type": "anthropic", "skill_id": "xlsx", "version": "latest"},
                        {"type": "custom", "skill_id": "skill_1", "version": "17"}]}
betas = {} if is_current else {
    "betas": ["code-execution-2025-08-25", "skills-2025-10-02", "files-api-2025-04-14"]}
messages = client.messages if is_current else client.beta.messages
for container in [container, {"id": "c_1", **container}]:
    content = [{"type": "text", "text": "Hi"}, {"type": "container_upload", "file_id": "file_1"}]
    messages.create(model="m", max_tokens=8192, messages=[{"role": "user", "content": content}], container=container,
                    tools=[{"type": "code_execution_20250825", "name": "code_execution"}], **betas)
"#;

/// Answers that both understand: the second page of what is listed is empty.
fn answers(request: &Recorded) -> Vec<u8> {
    let line = &request.line;
    let is_second = line.contains("page=");
    let file = json!({"id": "file_1", "type": "file", "filename": "a", "mime_type": "x/y", "size_bytes": 2,
        "created_at": "2026-11-21T00:00:00Z", "downloadable": true});
    let version = json!({"id": "17", "type": "skill_version", "version": "17", "skill_id": "skill_1", "name": "n",
        "description": "d", "directory": "n", "created_at": "2026-11-21T00:00:00Z"});
    let skill =
        json!({"id": "skill_1", "type": "skill", "source": "custom", "created_at": "a", "updated_at": "b"});
    let page = |item: Value| {
        let data: Vec<Value> = if is_second { Vec::new() } else { vec![item] };
        json!({"data": data, "has_more": !is_second, "next_page": (!is_second).then_some("page_2")})
    };
    let message = json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}});
    let path = line.split(' ').nth(1).unwrap().split('?').next().unwrap();
    let body = match (line.split(' ').next().unwrap(), path) {
        (_, "/v1/messages") => message,
        (_, "/v1/files/file_1/content") => return answer("200 OK", &[("content-type", "x/y")], "ab"),
        ("GET", "/v1/skills") => page(skill),
        ("GET", "/v1/skills/skill_1/versions") => page(version),
        (_, path) if path.starts_with("/v1/files") => file,
        (_, path) if path.contains("/versions") => version,
        _ => skill,
    };
    answer("200 OK", &[("content-type", "application/json")], &body.to_string())
}

/// The line with the fields of its query in order: the SDK puts a page's behind what was asked.
fn sorted(line: &str) -> String {
    let (line, version) = line.rsplit_once(' ').unwrap();
    let Some((path, query)) = line.split_once('?') else { return format!("{line} {version}") };
    let mut fields: Vec<&str> = query.split('&').collect();
    fields.sort_unstable();
    format!("{path}?{} {version}", fields.join("&"))
}

/// A request without what differs by chance or by client.
fn normalized(request: &Recorded) -> Value {
    let header = |name: &str| request.headers.get(name).cloned();
    let boundary =
        header("content-type").and_then(|kind| kind.split_once("boundary=").map(|(_, b)| b.to_owned()));
    let without = |text: String| match &boundary {
        Some(boundary) => text.replace(boundary.as_str(), "BOUNDARY"),
        None => text,
    };
    let is_message = request.line.contains("/v1/messages");
    let body = String::from_utf8(request.body.clone()).unwrap();
    let body = match serde_json::from_str::<Value>(&body) {
        Ok(mut body) => {
            if let Some(body) = body.as_object_mut() {
                body.remove("stream");
            }
            body
        }
        Err(_) => without(body).into(),
    };
    json!({
        "line": sorted(&request.line), "body": body,
        "version": header("anthropic-version"), "beta": header("anthropic-beta"),
        "key": [header("x-api-key"), header("authorization")],
        "type": header("content-type").map(without),
        // The order of a body's fields is ours.
        "length": header("content-length").filter(|_| !is_message),
        "accept": header("accept").filter(|_| !is_message),
    })
}

async fn send_own_requests(server: &Server, profile: ApiProfile, dir: &std::path::Path) {
    let config = config(server).with_profile(profile).with_http(|http| http.with_retries(0));
    let client = Client::with_clock(&config, Arc::new(ManualClock::new())).unwrap();
    let (skills, files) = (client.skills(), client.files());
    let (skill, version, file_id) = (SkillId::new("skill_1"), VersionId::new("17"), FileId::new("file_1"));
    let path = dir.join("my-skill");
    skills.upload(&path, Upload::new().with_title("My \u{e4} \"T\"")).await.unwrap();
    skills.upload(&path, Upload::new()).await.unwrap();
    let all = skills.list(Some(SkillSource::Custom));
    assert_eq!(futures_util::TryStreamExt::try_collect::<Vec<_>>(all).await.unwrap().len(), 1);
    skills.get(&skill).await.unwrap();
    skills.create_version(&skill, &path, Upload::new()).await.unwrap();
    let versions = skills.versions(&skill);
    assert_eq!(futures_util::TryStreamExt::try_collect::<Vec<_>>(versions).await.unwrap().len(), 1);
    skills.version(&skill, &version).await.unwrap();
    skills.delete_version(&skill, &version).await.unwrap();
    skills.delete(&skill).await.unwrap();
    let file = |content: &str| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    };
    files.upload("d\u{e4}ta \"q\" \\ 1.csv", file("1,2\n"), "text/csv").await.unwrap();
    files.upload("noend", file("\0"), "text/x-own").await.unwrap();
    let download = files.download(&file_id).await.unwrap();
    assert_eq!(download.bytes().await.unwrap(), b"ab");
    files.delete(&file_id).await.unwrap();
    let wanted = [HostedSkill::anthropic("xlsx"), HostedSkill::custom("skill_1").with_version("17")];
    let model = client.messages(ModelOptions::new("m").with_caching(Caching::Off)).unwrap();
    let upload = conjure_anthropic::hosted::container_upload(&file_id).to_string();
    let upload = conjure_conversation::Block::from_json(upload).unwrap();
    for container in [None, Some(conjure_base::ContainerId::new("c_1"))] {
        let content = vec![conjure_conversation::Block::text("Hi"), upload.clone()];
        let request = conjure_conversation::Request {
            instructions: Vec::new(),
            messages: vec![Arc::new(conjure_conversation::Message::user(content))],
            container,
            hosted: wanted.clone().into(),
            ..ask("")
        };
        drain(model.stream(request)).await.1.unwrap();
    }
}

#[tokio::test]
async fn our_requests_are_those_of_the_official_sdk() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("SKILL.md", "---\nname: my-skill\ndescription: D\n---\n"),
        ("assets/t\u{e4}ble one.csv", "a,b\r\n"),
        ("scripts/a.py", ""),
    ] {
        let path = dir.path().join("my-skill").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    for (profile, sdk) in [(ApiProfile::Current, CURRENT), (ApiProfile::Beta, BETA)] {
        let sdk_server = Server::start(|_, request| vec![Part::Bytes(answers(request))]).await;
        let is_current = profile == ApiProfile::Current;
        let input = json!([sdk_server.url(), crate::support::KEY, is_current, dir.path()]).to_string();
        if sdk.run(CALLS, &input, String::new()).await.is_none() {
            continue;
        }
        let server = Server::start(|_, request| vec![Part::Bytes(answers(request))]).await;
        send_own_requests(&server, profile, dir.path()).await;
        let (sdk_server, own) = (sdk_server.requests(), server.requests());
        for (sdk_server, own) in sdk_server.iter().zip(&own) {
            assert_eq!(normalized(own), normalized(sdk_server), "under {profile:?}");
        }
        assert_eq!(own.len(), sdk_server.len());
        assert_eq!(own.len(), 18);
    }
}

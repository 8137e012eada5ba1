//! What the official SDK sends is read, and objects keep the form in which it serialises them. `tests/golden/make.py`
//! writes the files.

use conjure_api::{
    Agent, AgentCreate, AgentListQuery, AgentUpdate, ArchivableListQuery, Credential, CredentialCreate,
    CredentialUpdate, Environment, EnvironmentCreate, EnvironmentUpdate, EventListQuery, EventSend,
    EventStreamQuery, FileListQuery, FileMetadata, MessageCreate, MessageHead, ModelListQuery, PageQuery,
    RequestBody as _, RequestError, ResourceCreate, Session, SessionCreate, SessionListQuery, SessionUpdate,
    Skill, SkillListQuery, SkillVersion, Time, Vault, VaultCreate, VaultUpdate, agent_version_query,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a request as a server does.
pub(crate) fn read(method: &str, path: &str, query: &str, body: &[u8]) -> Result<(), RequestError> {
    let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
    match (method, parts.as_slice()) {
        ("POST", ["agents"]) => AgentCreate::from_json(body).map(drop),
        ("POST", ["agents", _]) => AgentUpdate::from_json(body).map(drop),
        ("POST", ["environments"]) => EnvironmentCreate::from_json(body).map(drop),
        ("POST", ["environments", _]) => EnvironmentUpdate::from_json(body).map(drop),
        ("POST", ["messages"]) => MessageHead::from_json(body).and(MessageCreate::from_json(body).map(drop)),
        ("POST", ["sessions"]) => SessionCreate::from_json(body).map(drop),
        ("POST", ["sessions", _]) => SessionUpdate::from_json(body).map(drop),
        ("POST", ["sessions", _, "events"]) => EventSend::from_json(body).map(drop),
        ("POST", ["sessions", _, "resources"]) => ResourceCreate::from_json(body).map(drop),
        ("POST", ["vaults"]) => VaultCreate::from_json(body).map(drop),
        ("POST", ["vaults", _]) => VaultUpdate::from_json(body).map(drop),
        ("POST", ["vaults", _, "credentials"]) => {
            CredentialCreate::from_json(body, Time::default()).map(drop)
        }
        ("POST", ["vaults", _, "credentials", _]) => {
            CredentialUpdate::from_json(body, Time::default()).map(drop)
        }
        ("GET", ["environments"] | ["vaults"] | ["vaults", _, "credentials"]) => {
            ArchivableListQuery::from_query(query).map(drop)
        }
        ("GET", ["agents"]) => AgentListQuery::from_query(query).map(drop),
        ("GET", ["agents", _]) => agent_version_query(query).map(drop),
        ("GET", ["agents", _, "versions"]) => PageQuery::agent_versions(query).map(drop),
        ("GET", ["sessions"]) => SessionListQuery::from_query(query).map(drop),
        ("GET", ["sessions", _, "events"]) => EventListQuery::from_query(query).map(drop),
        ("GET", ["sessions", _, "events", "stream"]) => EventStreamQuery::from_query(query).map(drop),
        ("GET", ["sessions", _, "resources"]) => PageQuery::resources(query).map(drop),
        ("GET", ["files"]) => FileListQuery::from_query(query).map(drop),
        ("GET", ["skills"]) => SkillListQuery::from_query(query).map(drop),
        ("GET", ["skills", _, "versions"]) => PageQuery::skill_versions(query).map(drop),
        ("GET", ["models"]) => ModelListQuery::from_query(query).map(drop),
        _ => panic!("there is no such route: {method} {path}"),
    }
}

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

#[test]
fn sdk_requests_are_parsed() {
    let mut seen = 0;
    for request in lines(include_str!("../golden/requests.jsonl")) {
        let text = |name: &str| request[name].as_str().unwrap().to_owned();
        let body = request["body"].to_string();
        if let Err(error) = read(&text("method"), &text("path"), &text("query"), body.as_bytes()) {
            panic!("{request}\n{error}");
        }
        seen += 1;
    }
    assert_eq!(seen, 38);
}

#[test]
fn objects_have_the_form_of_the_sdk() {
    fn round_trip<T: Serialize + DeserializeOwned>(text: &str) -> String {
        serde_json::to_string(&serde_json::from_str::<T>(text).unwrap()).unwrap()
    }
    let mut seen = Vec::new();
    for line in include_str!("../golden/objects.jsonl").lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        let kind = value["kind"].as_str().unwrap().to_owned();
        let text = value["object"].to_string();
        let written = match kind.as_str() {
            "agent" => round_trip::<Agent>(&text),
            "environment" => round_trip::<Environment>(&text),
            "session" => round_trip::<Session>(&text),
            "vault" => round_trip::<Vault>(&text),
            "credential" => round_trip::<Credential>(&text),
            "file" => round_trip::<FileMetadata>(&text),
            "skill" => round_trip::<Skill>(&text),
            "skill_version" => round_trip::<SkillVersion>(&text),
            other => panic!("there is no such kind: {other}"),
        };
        let written: Value = serde_json::from_str(&written).unwrap();
        // The SDK writes microseconds.
        let expected: Value = serde_json::from_str(&text.replace(".123000Z", ".123Z")).unwrap();
        assert_eq!(written, expected, "{kind}");
        seen.push(kind);
    }
    let kinds = "agent environment session vault credential credential file skill skill_version";
    assert_eq!(seen.join(" "), kinds);
}

#[test]
fn a_schema_is_kept_verbatim() {
    let schema = r#"{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"number"}},"$defs":{}}"#;
    let body = format!(
        r#"{{"name":"n","model":"m","tools":[{{"type":"custom","name":"t","description":"d","input_schema":{schema}}}]}}"#
    );
    let create = AgentCreate::from_json(body.as_bytes()).unwrap();
    let stored = serde_json::to_string(&create.tools).unwrap();
    assert!(stored.contains(schema), "{stored}");
    let read: Vec<conjure_api::Tool> = serde_json::from_str(&stored).unwrap();
    assert_eq!(read, create.tools);
}

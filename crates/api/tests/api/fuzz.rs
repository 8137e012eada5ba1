//! No request makes a reader panic, whatever is in it.

use proptest::prelude::*;
use serde_json::Value;

use crate::golden::read;

const ROUTES: [(&str, &str); 26] = [
    ("POST", "/v1/messages"),
    ("POST", "/v1/agents"),
    ("POST", "/v1/agents/a"),
    ("POST", "/v1/environments"),
    ("POST", "/v1/environments/e"),
    ("POST", "/v1/sessions"),
    ("POST", "/v1/sessions/s"),
    ("POST", "/v1/sessions/s/events"),
    ("POST", "/v1/sessions/s/resources"),
    ("POST", "/v1/vaults"),
    ("POST", "/v1/vaults/v"),
    ("POST", "/v1/vaults/v/credentials"),
    ("POST", "/v1/vaults/v/credentials/c"),
    ("GET", "/v1/vaults"),
    ("GET", "/v1/agents"),
    ("GET", "/v1/agents/a"),
    ("GET", "/v1/agents/a/versions"),
    ("GET", "/v1/environments"),
    ("GET", "/v1/sessions"),
    ("GET", "/v1/sessions/s/events"),
    ("GET", "/v1/sessions/s/events/stream"),
    ("GET", "/v1/sessions/s/resources"),
    ("GET", "/v1/files"),
    ("GET", "/v1/skills"),
    ("GET", "/v1/skills/s/versions"),
    ("GET", "/v1/models"),
];

/// Words of the API that are values.
const WORDS: &str = "agent agent_with_overrides agent_toolset_20260401 custom mcp_toolset url static_bearer mcp_oauth client_secret_post cloud limited \
    file user.message user.interrupt user.tool_result system.message text image document search_result base64 bash web_fetch \
    always_ask limit USD high allow object user assistant tool_use tool_result";

/// Names of fields of the API.
const NAMES: &str = "type name model id tools configs default_config permission_policy enabled metadata system skills config networking packages pip \
    agent environment_id resources mount_path file_id events initial_events content source data input_schema budget max_list_cost \
    amount currency title version effort text media_type messages role max_tokens stream tool_choice mcp_servers mcp_server_name url \
    vault_ids auth token access_token mcp_server_url refresh token_endpoint_auth";

/// Values with the names and words of the API in places where they do not belong.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        prop::sample::select(WORDS.split(' ').collect::<Vec<_>>()).prop_map(str::to_owned),
        ".{0,12}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.prop_map(Value::from),
    ];
    let name = prop_oneof![
        prop::sample::select(NAMES.split(' ').collect::<Vec<_>>()).prop_map(str::to_owned),
        ".{0,8}",
    ];
    leaf.prop_recursive(6, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(name.clone(), inner, 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn arbitrary_json_is_read_or_refused(value in any_json()) {
        for (method, path) in ROUTES {
            let _ = read(method, path, "", value.to_string().as_bytes());
        }
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        for (method, path) in ROUTES {
            let _ = read(method, path, "", &bytes);
        }
    }

    #[test]
    fn arbitrary_queries_are_read_or_refused(query in "[a-z_%=&+\\[\\]0-9ä]{0,60}") {
        for (method, path) in ROUTES {
            let _ = read(method, path, &query, b"{}");
        }
    }

    #[test]
    fn a_request_of_the_sdk_with_one_change_is_read_or_refused(line in 0..38_usize, place in any::<prop::sample::Index>(), other in any_json()) {
        let text = include_str!("../golden/requests.jsonl").lines().nth(line).unwrap();
        let mut request: Value = serde_json::from_str(text).unwrap();
        let mut paths = Vec::new();
        all_paths(&request["body"], String::new(), &mut paths);
        let path = paths[place.index(paths.len())].clone();
        if let Some(value) = request["body"].pointer_mut(&path) {
            *value = other;
        }
        let (method, path) = (request["method"].as_str().unwrap(), request["path"].as_str().unwrap());
        let _ = read(method, path, request["query"].as_str().unwrap(), request["body"].to_string().as_bytes());
    }
}

/// The JSON pointers to a value and to all that is in it.
fn all_paths(value: &Value, path: String, paths: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                all_paths(item, format!("{path}/{index}"), paths);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                all_paths(field, format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), paths);
            }
        }
        _ => {}
    }
    paths.push(path);
}

#[test]
fn deep_json_is_refused_and_overflows_no_stack() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    for (method, path) in ROUTES {
        let _ = read(method, path, "", deep.as_bytes());
    }
    let body = format!(
        r#"{{"name":"n","model":"m","tools":[{{"type":"custom","name":"t","description":"d","input_schema":{{"type":"object","a":{deep}}}}}]}}"#
    );
    let error = read("POST", "/v1/agents", "", body.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("tools.0.input_schema: the value cannot be read: recursion limit"), "{error}");
}

//! `.mcp.json`: the file format in which many programs store MCP servers. Existing files are read unchanged.
//!
//! `{"mcpServers": {"NAME": {"command": …, "args": […], "env": {…}} or {"url": …, "headers": {…}}}}`. Members that are not known here are
//! ignored, because other programs may read them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::expansion::VariableLookup;
use super::spec::{
    AddressScope, HttpServer, McpServerName, McpServerSpec, McpTransport, ServerPlace, StdioServer,
};

/// Why the file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum McpConfigError {
    /// The file is not valid JSON.
    #[error("it is not JSON: {reason}")]
    Syntax {
        /// The mistake and its position.
        reason: String,
    },
    /// The file has no object `mcpServers`.
    #[error("it has no object `mcpServers`")]
    NoServers,
    /// A server has an invalid member.
    #[error("server `{server}`: {reason}")]
    Server {
        /// The server's name, as written.
        server: String,
        /// The mistake.
        reason: String,
    },
}

/// The servers of a file, and the reasons why others were left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpJson {
    /// The servers, by name.
    pub servers: Vec<McpServerSpec>,
    /// One sentence for each server that this program cannot use.
    pub skipped: Vec<String>,
}

/// Parses the text of a `.mcp.json`. `lookup` supplies the variables for `${VAR}`.
///
/// Servers of unsupported types, and servers whose names are not valid here, are not errors. They are left out.
///
/// # Errors
/// The place of the mistake, and what is wrong.
///
/// ```
/// use conjure_mcp::{McpTransport, parse_mcp_json};
///
/// let text = r#"{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time", "--local-timezone=${ZONE:-UTC}"]}}}"#;
/// let file = parse_mcp_json(text, &|_| None)?;
/// let McpTransport::Stdio(time) = &file.servers[0].transport else { panic!("it is a program") };
/// assert_eq!(time.args[1], "--local-timezone=UTC");
/// # Ok::<(), conjure_mcp::McpConfigError>(())
/// ```
pub fn parse_mcp_json(text: &str, lookup: VariableLookup<'_>) -> Result<McpJson, McpConfigError> {
    // Some editors write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let file: Value =
        serde_json::from_str(text).map_err(|error| McpConfigError::Syntax { reason: error.to_string() })?;
    let servers = file.get("mcpServers").and_then(Value::as_object).ok_or(McpConfigError::NoServers)?;
    let mut parsed = McpJson::default();
    for (name, members) in servers {
        let wrong = |reason: String| McpConfigError::Server { server: name.clone(), reason };
        let members = members.as_object().ok_or_else(|| wrong("it must be an object".to_owned()))?;
        // Other programs allow other names, so the rest of the file is still used.
        if let Err(reason) = McpServerName::new(name) {
            let name = conjure_base::text::truncate(name, 60).escape_debug().to_string();
            parsed.skipped.push(format!("server `{name}` is left out: {reason}"));
            continue;
        }
        match (Reader { members }).server(name).map_err(wrong)? {
            Ok(server) => parsed.servers.push(server.with_variables(lookup)),
            Err(kind) => parsed.skipped.push(format!(
                "server `{name}` is left out: servers of the type `{kind}` are not supported, only `stdio` and `http`"
            )),
        }
    }
    Ok(parsed)
}

/// Reads the members of one server.
struct Reader<'r> {
    members: &'r Map<String, Value>,
}

impl Reader<'_> {
    /// Parses a server. Returns its type if that type is not supported.
    fn server(&self, name: &str) -> Result<Result<McpServerSpec, String>, String> {
        let name = McpServerName::new(name)?;
        let kind = self.text("type")?;
        let transport = match (kind.as_deref(), self.text("command")?, self.text("url")?) {
            (Some("stdio") | None, Some(command), None) => McpTransport::Stdio(StdioServer {
                command,
                args: self.texts("args")?,
                env: self.map("env")?,
                place: ServerPlace::Sandbox,
                network: None,
            }),
            (Some("http" | "streamable-http" | "streamableHttp") | None, None, Some(url)) => {
                let headers = self.map("headers")?;
                McpTransport::Http(HttpServer { url, headers, addresses: AddressScope::AsWritten })
            }
            (Some(kind), None, Some(_)) => return Ok(Err(kind.to_owned())),
            (_, Some(_), Some(_)) => return Err("it has both `command` and `url`; remove one".to_owned()),
            (_, None, None) => return Err("it has neither `command` nor `url`".to_owned()),
            (Some(kind), Some(_), None) => return Err(format!("type `{kind}` has no `command`")),
        };
        let mut server = McpServerSpec::new(name, transport);
        // Milliseconds, as in other programs that read the file.
        if let Some(value) = self.members.get("timeout") {
            let timeout = value.as_u64().filter(|millis| *millis > 0);
            let timeout = timeout.ok_or("`timeout` must be a number of milliseconds")?;
            server.tool_timeout = Duration::from_millis(timeout);
        }
        Ok(Ok(server))
    }

    fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.members.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(format!("`{key}` must be a text that is not empty")),
        }
    }

    fn texts(&self, key: &str) -> Result<Vec<String>, String> {
        let wrong = || format!("`{key}` must be a list of texts");
        match self.members.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                let text = |item: &Value| item.as_str().map(str::to_owned);
                items.iter().map(|item| text(item).ok_or_else(wrong)).collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    fn map(&self, key: &str) -> Result<BTreeMap<String, String>, String> {
        let wrong = || format!("`{key}` must be an object of texts");
        match self.members.get(key) {
            None | Some(Value::Null) => Ok(BTreeMap::new()),
            Some(Value::Object(members)) => members
                .iter()
                .map(|(name, value)| match value {
                    Value::String(text) => Ok((name.clone(), text.clone())),
                    // Users often write ports and flags without quotes.
                    Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
                    _ => Err(wrong()),
                })
                .collect(),
            Some(_) => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<McpJson, McpConfigError> {
        parse_mcp_json(text, &|name| (name == "TOKEN").then(|| "s3cret".to_owned()))
    }

    #[test]
    fn the_lines_that_people_have_are_read() {
        let text = r#"{
          "mcpServers": {
            "git": {"command": "uvx", "args": ["mcp-server-git", "--repository", "/home/ada/app"]},
            "files": {"type": "stdio", "command": "npx", "args": ["-y", "server-filesystem", "."], "env": {"PORT": 8, "KEY": "${TOKEN}"}},
            "issues": {"type": "http", "url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}, "timeout": 5000},
            "old": {"type": "sse", "url": "https://old.example.com/sse"},
            "My Server": {"command": "x"}
          },
          "inputs": []
        }"#;
        let file = parse(text).unwrap();
        assert_eq!(file.skipped.len(), 2, "{:?}", file.skipped);
        assert!(file.skipped[1].contains("`My Server` is left out"), "{:?}", file.skipped);
        assert!(file.skipped[0].contains("`old`") && file.skipped[0].contains("`sse`"));
        let [git, files, issues] = file.servers.as_slice() else { panic!("{file:?}") };
        assert_eq!((git.name.as_str(), files.name.as_str()), ("git", "files"));
        let McpTransport::Stdio(files) = &files.transport else { panic!("{files:?}") };
        assert_eq!((files.env["PORT"].as_str(), files.env["KEY"].as_str()), ("8", "s3cret"));
        let McpTransport::Http(http) = &issues.transport else { panic!("{issues:?}") };
        assert_eq!(http.headers["Authorization"], "Bearer s3cret");
        assert_eq!(issues.tool_timeout, Duration::from_secs(5));
        assert!(!format!("{file:?}").contains("s3cret"), "values are not shown");
        assert_eq!(
            issues.secrets().collect::<Vec<_>>(),
            [("Authorization", "Bearer s3cret"), ("Authorization", "s3cret")]
        );
    }

    #[test]
    fn a_line_of_docker_gets_the_variables_that_it_names() {
        let text = r#"{"mcpServers": {"a": {"command": "docker", "args": ["run", "-i", "-e", "TOKEN", "-e", "OTHER", "-e", "SET", "x"],
                       "env": {"SET": "here"}}}}"#;
        let file = parse(text).unwrap();
        let McpTransport::Stdio(program) = &file.servers[0].transport else { panic!("{file:?}") };
        let variables = program.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        assert_eq!(variables.collect::<Vec<_>>(), [("SET", "here"), ("TOKEN", "s3cret")]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_server() {
        for (text, part) in [
            ("{", "it is not JSON"),
            ("[]", "no object `mcpServers`"),
            (r#"{"mcpServers": []}"#, "no object `mcpServers`"),
            (r#"{"mcpServers": {"a": 1}}"#, "server `a`: it must be an object"),
            (r#"{"mcpServers": {"a": {}}}"#, "server `a`: it has neither `command` nor `url`"),
            (r#"{"mcpServers": {"a": {"command": "x", "url": "y"}}}"#, "both `command` and `url`"),
            (r#"{"mcpServers": {"a": {"command": ""}}}"#, "`command` must be a text that is not empty"),
            (r#"{"mcpServers": {"a": {"command": "x", "args": "y"}}}"#, "`args` must be a list of texts"),
            (
                r#"{"mcpServers": {"a": {"command": "x", "env": {"A": []}}}}"#,
                "`env` must be an object of texts",
            ),
            (r#"{"mcpServers": {"a": {"command": "x", "timeout": "1"}}}"#, "`timeout` must be a number"),
            (r#"{"mcpServers": {"a": {"type": "http", "command": "x"}}}"#, "type `http` has no `command`"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(\\PC|[{}\\[\\]\":,$-]){0,200}") {
            let _ = parse(&text);
            let _ = parse(&format!(r#"{{"mcpServers": {{"a": {text}}}}}"#));
        }
    }
}

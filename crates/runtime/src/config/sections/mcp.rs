//! The tables `[mcp.NAME]`: the MCP servers that sessions may have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use conjure_conversation::PermissionPolicy;
use conjure_mcp::{
    AddressScope, HttpServer, McpServerName, McpServerSpec, McpTransport, ServerPlace, StdioServer,
};
use conjure_sandbox::NetworkPolicy;
use toml::{Table, Value};

use crate::config::file::seconds;
use crate::config::keys;
use crate::config::sections::sandbox::parse_network;

/// The name of these tables in the list of keys.
pub(crate) const TABLE: &str = "mcp.NAME";

/// Parses the table `mcp`, which has one table for each server.
pub(crate) fn parse(tables: &Table) -> Result<BTreeMap<String, McpServerSpec>, String> {
    let mut servers = BTreeMap::new();
    for (name, table) in tables {
        let in_server = |reason: String| format!("server `{name}`: {reason}");
        let Value::Table(table) = table else {
            return Err(in_server(format!("it must be a table, not a {}", table.type_str())));
        };
        servers.insert(name.clone(), server(name, table).map_err(in_server)?);
    }
    Ok(servers)
}

fn server(name: &str, table: &Table) -> Result<McpServerSpec, String> {
    keys::check(table, TABLE)?;
    let reader = Reader(table);
    let transport = match (reader.text("command")?, reader.text("url")?) {
        (Some(command), None) => McpTransport::Stdio(StdioServer {
            command,
            args: reader.texts("args")?.unwrap_or_default(),
            env: reader.map("env")?,
            place: reader.place()?,
            network: reader.network()?,
        }),
        (None, Some(url)) => {
            let headers = reader.map("headers")?;
            McpTransport::Http(HttpServer { url, headers, addresses: AddressScope::AsWritten })
        }
        (Some(_), Some(_)) => return Err("it has both `command` and `url`; remove one".to_owned()),
        (None, None) => return Err("it has neither `command` nor `url`".to_owned()),
    };
    let of_other = match &transport {
        McpTransport::Stdio(_) => ["headers"].as_slice(),
        McpTransport::Http(_) => ["args", "env", "network", "sandbox", "shared"].as_slice(),
    };
    if let Some(key) = of_other.iter().find(|key| table.contains_key(**key)) {
        let (has, needs) = match &transport {
            McpTransport::Stdio(_) => ("command", "url"),
            McpTransport::Http(_) => ("url", "command"),
        };
        return Err(format!("`{key}` goes with `{needs}`, and it has a `{has}`"));
    }
    let (shared, sampling) = (reader.flag("shared")?, reader.flag("sampling")?);
    if shared == Some(true) && sampling == Some(true) {
        return Err("`sampling` and `shared` exclude each other: a shared server has no session whose model it could ask".to_owned());
    }
    let defaults = McpServerSpec::new(McpServerName::new(name)?, transport);
    let set = |list: Option<Vec<String>>| list.map(|list| list.into_iter().collect::<BTreeSet<_>>());
    let tool_permissions = reader.map("tool_approval")?;
    Ok(McpServerSpec {
        required: reader.flag("required")?.unwrap_or(defaults.required),
        enabled_tools: set(reader.texts("enabled_tools")?),
        disabled_tools: set(reader.texts("disabled_tools")?).unwrap_or_default(),
        permission: reader
            .text("approval")?
            .map_or(Ok(defaults.permission), |text| permission("approval", &text))?,
        tool_permissions: tool_permissions
            .into_iter()
            .map(|(tool, text)| Ok((tool, permission("tool_approval", &text)?)))
            .collect::<Result<_, String>>()?,
        startup_timeout: reader.time("startup_timeout")?.unwrap_or(defaults.startup_timeout),
        tool_timeout: reader.time("tool_timeout")?.unwrap_or(defaults.tool_timeout),
        parallel_calls: reader.flag("parallel_calls")?.unwrap_or(defaults.parallel_calls),
        shared: shared.unwrap_or(defaults.shared),
        sampling: sampling.unwrap_or(defaults.sampling),
        ..defaults
    })
}

fn permission(key: &str, text: &str) -> Result<PermissionPolicy, String> {
    match text {
        "allow" => Ok(PermissionPolicy::AlwaysAllow),
        "ask" => Ok(PermissionPolicy::AlwaysAsk),
        _ => Err(format!("`{key}`: there is no `{text}`; there are `allow` and `ask`")),
    }
}

/// Reads the members of one table.
struct Reader<'t>(&'t Table);

impl Reader<'_> {
    fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(format!("`{key}` must be a text that is not empty")),
        }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::Boolean(flag)) => Ok(Some(*flag)),
            Some(_) => Err(format!("`{key}` must be `true` or `false`")),
        }
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<String>>, String> {
        let wrong = || format!("`{key}` must be a list of texts");
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::Array(items)) => {
                let texts = items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong));
                texts.collect::<Result<_, _>>().map(Some)
            }
            Some(_) => Err(wrong()),
        }
    }

    fn map(&self, key: &str) -> Result<BTreeMap<String, String>, String> {
        let wrong = || format!("`{key}` must be a table of texts");
        match self.0.get(key) {
            None => Ok(BTreeMap::new()),
            Some(Value::Table(members)) => members
                .iter()
                .map(|(name, value)| Ok((name.clone(), value.as_str().ok_or_else(wrong)?.to_owned())))
                .collect(),
            Some(_) => Err(wrong()),
        }
    }

    fn time(&self, key: &str) -> Result<Option<Duration>, String> {
        self.0.get(key).map(seconds).transpose().map_err(|reason| format!("`{key}`: {reason}"))
    }

    fn network(&self) -> Result<Option<NetworkPolicy>, String> {
        let policy = match self.0.get("network") {
            None => return Ok(None),
            Some(Value::String(word)) => parse_network([word.as_str()].into_iter()),
            Some(_) => {
                let hosts = self.texts("network")?.unwrap_or_default();
                parse_network(hosts.iter().map(String::as_str))
            }
        };
        policy.map(Some).map_err(|reason| format!("`network`: {reason}"))
    }

    fn place(&self) -> Result<ServerPlace, String> {
        match self.text("sandbox")?.as_deref() {
            None | Some("own") => Ok(ServerPlace::Sandbox),
            Some("local") => Ok(ServerPlace::Local),
            Some(other) => Err(format!("`sandbox`: there is no `{other}`; there are `own` and `local`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BTreeMap<String, McpServerSpec>, String> {
        parse(&toml::from_str(text).unwrap())
    }

    #[test]
    fn every_key_is_read() {
        let servers = read(
            "[git]\ncommand = 'uvx'\nargs = ['mcp-server-git']\nenv = { A = '${B}' }\nrequired = true\n\
             enabled_tools = ['a']\ndisabled_tools = ['b']\napproval = 'ask'\ntool_approval = { a = 'allow' }\n\
             startup_timeout = 5\ntool_timeout = 0.5\nparallel_calls = true\nnetwork = ['pypi.org']\nsandbox = 'local'\n\
             [issues]\nurl = 'https://mcp.example.com/mcp'\nheaders = { Authorization = 'Bearer ${T}' }\n",
        )
        .unwrap();
        let git = &servers["git"];
        let McpTransport::Stdio(program) = &git.transport else { panic!("{git:?}") };
        assert_eq!((program.command.as_str(), program.env["A"].as_str()), ("uvx", "${B}"));
        assert_eq!(program.place, ServerPlace::Local);
        assert_eq!(program.network, Some(NetworkPolicy::Limited(vec!["pypi.org".to_owned()])));
        assert!(git.required && git.parallel_calls);
        assert_eq!(git.permission, PermissionPolicy::AlwaysAsk);
        assert_eq!(git.tool_permissions["a"], PermissionPolicy::AlwaysAllow);
        assert_eq!(
            (git.startup_timeout, git.tool_timeout),
            (Duration::from_secs(5), Duration::from_millis(500))
        );
        assert!(matches!(&servers["issues"].transport, McpTransport::Http(http) if http.headers.len() == 1));
    }

    #[test]
    fn mistakes_are_told_with_the_server() {
        for (text, part) in [
            ("git = 1", "server `git`: it must be a table"),
            ("[git]", "neither `command` nor `url`"),
            ("[git]\ncommand = 'a'\nurl = 'b'", "both `command` and `url`"),
            ("[git]\ncommand = ' '", "`command` must be a text that is not empty"),
            ("[git]\ncomand = 'a'", "there is no `comand`, did you mean `command`?"),
            ("[git]\nurl = 'a'\nargs = []", "`args` goes with `command`, and it has a `url`"),
            ("[git]\ncommand = 'a'\nheaders = {}", "`headers` goes with `url`"),
            ("[git]\ncommand = 'a'\napproval = 'never'", "`approval`: there is no `never`"),
            ("[git]\ncommand = 'a'\nargs = 'b'", "`args` must be a list of texts"),
            ("[git]\ncommand = 'a'\nrequired = 1", "`required` must be `true` or `false`"),
            ("[git]\ncommand = 'a'\ntool_timeout = 0", "`tool_timeout`: "),
            ("[git]\ncommand = 'a'\nsandbox = 'jail'", "`sandbox`: there is no `jail`"),
            ("['a b']\ncommand = 'a'", "cannot be the name of an MCP server"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

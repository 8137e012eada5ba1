//! The tables `[mcp.NAME]`: the MCP servers that sessions may have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use conjure_conversation::PermissionPolicy;
use conjure_mcp::{
    AddressScope, HttpServer, McpServerName, McpServerSpec, McpTransport, ServerPlace, StdioServer,
};
use conjure_sandbox::NetworkPolicy;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::config::values;

/// The name of these tables in the list of keys.
pub(crate) const TABLE: &str = "mcp.NAME";

/// One of these tables.
#[derive(Default, Deserialize)]
#[serde(default, expecting = "a table")]
struct ServerTable {
    #[serde(deserialize_with = "values::text")]
    command: Option<String>,
    args: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "values::text")]
    url: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    required: bool,
    enabled_tools: Option<BTreeSet<String>>,
    disabled_tools: BTreeSet<String>,
    approval: Approval,
    tool_approval: BTreeMap<String, Approval>,
    #[serde(deserialize_with = "values::seconds")]
    startup_timeout: Option<Duration>,
    #[serde(deserialize_with = "values::seconds")]
    tool_timeout: Option<Duration>,
    parallel_calls: bool,
    shared: Option<bool>,
    sampling: bool,
    #[serde(deserialize_with = "values::network")]
    network: Option<NetworkPolicy>,
    sandbox: Option<SandboxChoice>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Approval {
    #[default]
    Allow,
    Ask,
}

impl From<Approval> for PermissionPolicy {
    fn from(approval: Approval) -> Self {
        match approval {
            Approval::Allow => Self::AlwaysAllow,
            Approval::Ask => Self::AlwaysAsk,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum SandboxChoice {
    Own,
    Local,
}

/// The table of a server, checked, without the server's name.
#[derive(Deserialize)]
#[serde(try_from = "ServerTable")]
struct UnnamedServer {
    transport: McpTransport,
    /// The settings that do not depend on the transport.
    table: ServerTable,
}

impl TryFrom<ServerTable> for UnnamedServer {
    type Error = String;

    fn try_from(mut table: ServerTable) -> Result<Self, String> {
        let of_http = [("headers", table.headers.is_some())];
        let of_program = [
            ("args", table.args.is_some()),
            ("env", table.env.is_some()),
            ("network", table.network.is_some()),
            ("sandbox", table.sandbox.is_some()),
            ("shared", table.shared.is_some()),
        ];
        let (transport, has, needs, of_other) = match (table.command.take(), table.url.take()) {
            (Some(command), None) => {
                let program = StdioServer {
                    command,
                    args: table.args.take().unwrap_or_default(),
                    env: table.env.take().unwrap_or_default(),
                    place: match table.sandbox {
                        None | Some(SandboxChoice::Own) => ServerPlace::Sandbox,
                        Some(SandboxChoice::Local) => ServerPlace::Local,
                    },
                    network: table.network.take(),
                };
                (McpTransport::Stdio(program), "command", "url", of_http.as_slice())
            }
            (None, Some(url)) => {
                let headers = table.headers.take().unwrap_or_default();
                let server = HttpServer { url, headers, addresses: AddressScope::AsWritten };
                (McpTransport::Http(server), "url", "command", of_program.as_slice())
            }
            (Some(_), Some(_)) => return Err("it has both `command` and `url`; remove one".to_owned()),
            (None, None) => return Err("it has neither `command` nor `url`".to_owned()),
        };
        if let Some((key, _)) = of_other.iter().find(|(_, is_set)| *is_set) {
            return Err(format!("`{key}` goes with `{needs}`, and it has a `{has}`"));
        }
        if table.shared == Some(true) && table.sampling {
            return Err("`sampling` and `shared` exclude each other: a shared server has no session whose model it could ask".to_owned());
        }
        Ok(Self { transport, table })
    }
}

/// Parses the table `mcp`, which has one table for each server.
pub(crate) fn servers<'de, D>(deserializer: D) -> Result<BTreeMap<String, McpServerSpec>, D::Error>
where
    D: Deserializer<'de>,
{
    let servers = BTreeMap::<String, UnnamedServer>::deserialize(deserializer)?;
    let named = |(name, server): (String, UnnamedServer)| {
        let server_name = McpServerName::new(&name).map_err(D::Error::custom)?;
        Ok((name, server.spec(server_name)))
    };
    servers.into_iter().map(named).collect()
}

impl UnnamedServer {
    fn spec(self, name: McpServerName) -> McpServerSpec {
        let Self { transport, table } = self;
        let defaults = McpServerSpec::new(name, transport);
        McpServerSpec {
            required: table.required,
            enabled_tools: table.enabled_tools,
            disabled_tools: table.disabled_tools,
            permission: table.approval.into(),
            tool_permissions: table.tool_approval.into_iter().map(|(tool, own)| (tool, own.into())).collect(),
            startup_timeout: table.startup_timeout.unwrap_or(defaults.startup_timeout),
            tool_timeout: table.tool_timeout.unwrap_or(defaults.tool_timeout),
            parallel_calls: table.parallel_calls,
            shared: table.shared.unwrap_or(defaults.shared),
            sampling: table.sampling,
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BTreeMap<String, McpServerSpec>, String> {
        servers(toml::from_str::<toml::Table>(text).unwrap()).map_err(|error| error.to_string())
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
            ("git = 1", "expected a table\nin `git`"),
            ("[git]", "neither `command` nor `url`"),
            ("[git]\ncommand = 'a'\nurl = 'b'", "both `command` and `url`"),
            ("[git]\ncommand = ' '", "it is empty\nin `git.command`"),
            ("[git]\nurl = 'a'\nargs = []", "`args` goes with `command`, and it has a `url`"),
            ("[git]\ncommand = 'a'\nheaders = {}", "`headers` goes with `url`"),
            (
                "[git]\ncommand = 'a'\napproval = 'never'",
                "unknown variant `never`, expected `allow` or `ask`",
            ),
            ("[git]\ncommand = 'a'\nargs = 'b'", "expected a sequence"),
            ("[git]\ncommand = 'a'\nrequired = 1", "expected a boolean"),
            ("[git]\ncommand = 'a'\ntool_timeout = 0", "0 is not a number of seconds"),
            ("[git]\ncommand = 'a'\nsandbox = 'jail'", "unknown variant `jail`, expected `own` or `local`"),
            ("['a b']\ncommand = 'a'", "cannot be the name of an MCP server"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

//! [`McpServerSpec`]: one configured server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use conjure_conversation::PermissionPolicy;
use conjure_sandbox::NetworkPolicy;

use super::container_run::ContainerRun;
use super::expansion::{VariableLookup, expand};

/// The name of a server: 1 to 40 of ASCII letters, digits, `-`, and single `_` between them. It is a part of its tools' names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct McpServerName(String);

impl McpServerName {
    /// The longest name, so that a part of the tools' names is left for the tools.
    const MAX_BYTES: usize = 40;

    /// Checks a name.
    ///
    /// # Errors
    /// What a name may hold, as text.
    pub fn new(text: &str) -> Result<Self, String> {
        let is_valid = (1..=Self::MAX_BYTES).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
            // The names of its tools are `mcp__SERVER__TOOL`.
            && !text.contains("__")
            && !text.starts_with('_')
            && !text.ends_with('_');
        if is_valid { Ok(Self(text.to_owned())) } else { Err(Self::refusal(text)) }
    }

    /// The name for a server that people call by this label, such as `My server (beta)`: other characters become `_`, and what is too long is
    /// cut off.
    ///
    /// # Errors
    /// If no letter, digit or `-` is in it, as text.
    ///
    /// ```
    /// use conjure_mcp::McpServerName;
    ///
    /// assert_eq!(McpServerName::from_label("My server (beta)")?.as_str(), "My_server_beta");
    /// # Ok::<(), String>(())
    /// ```
    pub fn from_label(label: &str) -> Result<Self, String> {
        let is_possible = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let parts: Vec<&str> = label.split(|c| !is_possible(c)).filter(|part| !part.is_empty()).collect();
        let mut name = parts.join("_");
        name.truncate(Self::MAX_BYTES);
        Self::new(name.trim_end_matches('_')).map_err(|_| Self::refusal(label))
    }

    fn refusal(text: &str) -> String {
        let shown = conjure_base::text::truncate(text, 60);
        format!(
            "`{}` cannot be the name of an MCP server: use 1 to {} of letters, digits, `-`, and single `_` between them",
            shown.escape_debug(),
            Self::MAX_BYTES
        )
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for McpServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One configured server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerSpec {
    /// Its name.
    pub name: McpServerName,
    /// How it is reached.
    pub transport: McpTransport,
    /// Whether a session waits for its tools before the first model call, and does not start without them.
    pub required: bool,
    /// The tools that are offered, by the server's own names; `None`: all of them.
    pub enabled_tools: Option<BTreeSet<String>>,
    /// Tools that are not offered.
    pub disabled_tools: BTreeSet<String>,
    /// Whether its calls are decided on by a person.
    pub permission: PermissionPolicy,
    /// The same for single tools.
    pub tool_permissions: BTreeMap<String, PermissionPolicy>,
    /// How long its start and the listing of its tools may take. 30 seconds by default.
    pub startup_timeout: Duration,
    /// How long one call may take. 60 seconds by default.
    pub tool_timeout: Duration,
    /// Whether calls of one answer run at the same time. By default those do whose tools say that they only read.
    pub parallel_calls: bool,
    /// Whether all sessions of a tenant use one process of it, if it is a program. By default each session has its own.
    pub shared: bool,
    /// Whether it may ask the session's model in the middle of a call ("sampling" in MCP). By default it may not. A shared server has no session
    /// to ask for.
    pub sampling: bool,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpTransport {
    /// A program that speaks over its standard input and output.
    Stdio(StdioServer),
    /// A service that speaks Streamable HTTP.
    Http(HttpServer),
}

/// A program that is a server.
#[derive(Clone, PartialEq, Eq)]
pub struct StdioServer {
    /// The program: a path, or a name that is looked up in the directories of `PATH`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that it sees. They may be secrets: only the server's own sandbox has them.
    pub env: BTreeMap<String, String>,
    /// Where it runs.
    pub place: ServerPlace,
    /// What it may reach; `None`: nothing. Programs that fetch a package and run it (`npx`, `uvx`) also reach the package registries until the
    /// server answers, except with [`NetworkPolicy::None`].
    pub network: Option<NetworkPolicy>,
}

/// Where a server's program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerPlace {
    /// In a sandbox of its own, of the kind that the session's tools have.
    #[default]
    Sandbox,
    /// On the host, without isolation.
    Local,
}

/// A service that is a server.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpServer {
    /// Its address, such as `https://mcp.example.com/mcp`.
    pub url: String,
    /// Headers of each request, by name. They may hold secrets.
    pub headers: BTreeMap<String, String>,
    /// Which addresses may be dialled for it.
    pub addresses: AddressScope,
}

/// Which addresses may be dialled for a server by HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressScope {
    /// Public ones; and `localhost` or a private address where the URL itself has it. For URLs that the operator wrote.
    #[default]
    AsWritten,
    /// Public ones alone. For URLs of anybody else.
    PublicOnly,
}

impl McpServerSpec {
    /// A server with the defaults: all tools, allowed without asking, 30 seconds to start and 60 for a call.
    #[must_use]
    pub const fn new(name: McpServerName, transport: McpTransport) -> Self {
        Self {
            name,
            transport,
            required: false,
            enabled_tools: None,
            disabled_tools: BTreeSet::new(),
            permission: PermissionPolicy::AlwaysAllow,
            tool_permissions: BTreeMap::new(),
            startup_timeout: Duration::from_secs(30),
            tool_timeout: Duration::from_secs(60),
            parallel_calls: false,
            shared: false,
            sampling: false,
        }
    }

    /// The same server with `${VAR}` and `${VAR:-default}` replaced in its command, arguments, variables, address and headers. A variable that
    /// `lookup` does not have, and that has no default, stays as it is written. It has the variables of [`McpServerSpec::with_named_variables`], too.
    #[must_use]
    pub fn with_variables(mut self, lookup: VariableLookup<'_>) -> Self {
        let replace = |text: &mut String| *text = expand(text, lookup);
        match &mut self.transport {
            McpTransport::Stdio(stdio) => {
                replace(&mut stdio.command);
                stdio.args.iter_mut().chain(stdio.env.values_mut()).for_each(replace);
            }
            McpTransport::Http(http) => {
                replace(&mut http.url);
                http.headers.values_mut().for_each(replace);
            }
        }
        self.with_named_variables(lookup)
    }

    /// The same server with the variables that a line `docker run -e NAME …` names without a value, where `env` does not have them.
    #[must_use]
    pub fn with_named_variables(mut self, lookup: VariableLookup<'_>) -> Self {
        // What is wrong with a line is told when its server is made.
        if let McpTransport::Stdio(stdio) = &mut self.transport
            && let Ok(Some(run)) = ContainerRun::parse(&stdio.command, &stdio.args)
        {
            let named = run.env.into_iter().filter(|(_, value)| value.is_none());
            for (name, value) in named.filter_map(|(name, _)| lookup(&name).map(|value| (name, value))) {
                stdio.env.entry(name).or_insert(value);
            }
        }
        self
    }

    /// Whether a tool of this name is offered.
    #[cfg(feature = "client")]
    pub(crate) fn is_enabled(&self, tool: &str) -> bool {
        !self.disabled_tools.contains(tool)
            && self.enabled_tools.as_ref().is_none_or(|enabled| enabled.contains(tool))
    }

    /// The policy of a tool.
    #[cfg(feature = "client")]
    pub(crate) fn permission_of(&self, tool: &str) -> PermissionPolicy {
        self.tool_permissions.get(tool).copied().unwrap_or(self.permission)
    }

    /// Differs when another program or service would answer. Values of variables and headers do not count: they may be secrets.
    #[cfg(feature = "client")]
    pub(crate) fn identity(&self) -> conjure_base::Digest {
        let text = match &self.transport {
            McpTransport::Stdio(stdio) => {
                format!("stdio {:?} {:?} {:?}", stdio.command, stdio.args, stdio.env.keys())
            }
            McpTransport::Http(http) => format!("http {:?} {:?}", http.url, http.headers.keys()),
        };
        conjure_base::Digest::of_bytes(text.as_bytes())
    }

    /// The values of variables and headers whose names look like those of secrets, by name.
    pub fn secrets(&self) -> impl Iterator<Item = (&str, &str)> {
        let values = match &self.transport {
            McpTransport::Stdio(stdio) => &stdio.env,
            McpTransport::Http(http) => &http.headers,
        };
        let is_header = matches!(self.transport, McpTransport::Http(_));
        values
            .iter()
            .filter(move |(name, value)| is_header || conjure_base::is_sensitive_variable(name, value))
            .flat_map(move |(name, value)| {
                // A server may repeat a token without the scheme before it.
                let bare = value.split_once(' ').filter(|_| is_header).map(|(_, token)| token.trim());
                std::iter::once(value.as_str()).chain(bare).map(|value| (name.as_str(), value))
            })
    }
}

/// Names of variables only: a value may be a secret.
impl fmt::Debug for StdioServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioServer")
            .field("command", &self.command)
            .field("args", &self.args)
            .field("env", &self.env.keys())
            .field("place", &self.place)
            .field("network", &self.network)
            .finish()
    }
}

/// Names of headers only: a value may be a secret.
impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServer").field("url", &self.url).field("headers", &self.headers.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_of_people_become_names() {
        for (label, name) in [
            ("git", "git"),
            ("My server (beta)", "My_server_beta"),
            ("@scope/server-github", "scope_server-github"),
            ("__a__b__", "a_b"),
            ("Uhr für Köln", "Uhr_f_r_K_ln"),
        ] {
            assert_eq!(McpServerName::from_label(label).unwrap().as_str(), name);
        }
        for label in ["", "__", "时间"] {
            let refused = McpServerName::from_label(label).unwrap_err();
            assert!(refused.contains(&format!("`{label}` cannot be the name")), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn every_name_stays_and_every_label_with_a_letter_has_one(label in "\\PC{0,80}", letter in "[a-zA-Z0-9-]") {
            let named = McpServerName::from_label(&format!("{label}{letter}")).unwrap();
            prop_assert_eq!(McpServerName::new(named.as_str()).unwrap(), named.clone());
            prop_assert_eq!(McpServerName::from_label(named.as_str()).unwrap(), named);
        }
    }
}

//! [`McpServerSpec`]: one configured server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use conjure_conversation::PermissionPolicy;
use conjure_sandbox::NetworkPolicy;

use super::container_run::ContainerRun;
use super::expansion::{VariableLookup, expand};

/// The name of a server: 1 to 40 ASCII letters, digits and `-`, with single `_` between them. It is part of the names of the server's
/// tools.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct McpServerName(String);

impl McpServerName {
    /// The maximum length of a name, in bytes. It leaves room for the tool's own name.
    const MAX_BYTES: usize = 40;

    /// Checks a name.
    ///
    /// # Errors
    /// The rules for names, as text.
    pub fn new(text: &str) -> Result<Self, String> {
        let is_valid = (1..=Self::MAX_BYTES).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
            // The names of the server's tools are `mcp__SERVER__TOOL`.
            && !text.contains("__")
            && !text.starts_with('_')
            && !text.ends_with('_');
        if is_valid { Ok(Self(text.to_owned())) } else { Err(Self::refusal(text)) }
    }

    /// Makes a name from a label for people, such as `My server (beta)`. Other characters become `_`, and a long label is cut off.
    ///
    /// # Errors
    /// If the label has no letter, digit or `-`, as text.
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
    /// The name of the server.
    pub name: McpServerName,
    /// How the server is reached.
    pub transport: McpTransport,
    /// Whether a session waits for the server's tools before its first model call, and fails to start without them.
    pub required: bool,
    /// The tools that are offered, by the server's own names. `None`: all of them.
    pub enabled_tools: Option<BTreeSet<String>>,
    /// Tools that are not offered.
    pub disabled_tools: BTreeSet<String>,
    /// Whether the user decides on calls of its tools.
    pub permission: PermissionPolicy,
    /// The policies of single tools, by the server's own names. They override `permission`.
    pub tool_permissions: BTreeMap<String, PermissionPolicy>,
    /// The timeout of the server's start and its listing of tools. 30 seconds by default.
    pub startup_timeout: Duration,
    /// The timeout of one call. 60 seconds by default.
    pub tool_timeout: Duration,
    /// Whether calls of one response run concurrently. By default, only calls of tools that the server declares read-only do.
    pub parallel_calls: bool,
    /// Whether all sessions of a tenant share one process of the server, if it is a program. By default each session has its own.
    pub shared: bool,
    /// Whether the server may send requests to the session's model during a call ("sampling" in MCP). Off by default. A shared server
    /// cannot use it, because it belongs to no single session.
    pub sampling: bool,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpTransport {
    /// A program that communicates over its standard input and output.
    Stdio(StdioServer),
    /// A service that is reached over Streamable HTTP.
    Http(HttpServer),
}

/// The program of a server.
#[derive(Clone, PartialEq, Eq)]
pub struct StdioServer {
    /// The program: a path, or a name that is searched in `PATH`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables. They may be secrets: only the server's own sandbox gets them.
    pub env: BTreeMap<String, String>,
    /// Where the program runs.
    pub place: ServerPlace,
    /// The network access of the program. `None`: no access. Programs that fetch and run a package (`npx`, `uvx`) may also reach the
    /// package registries until the server answers, except with [`NetworkPolicy::None`].
    pub network: Option<NetworkPolicy>,
}

/// Where a server's program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerPlace {
    /// In its own sandbox, of the same kind as the sandbox of the session's tools.
    #[default]
    Sandbox,
    /// On the host, without isolation.
    Local,
}

/// A server that is reached over HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpServer {
    /// The URL, such as `https://mcp.example.com/mcp`.
    pub url: String,
    /// Headers of each request, by name. They may contain secrets.
    pub headers: BTreeMap<String, String>,
    /// The addresses that may be dialled for the server.
    pub addresses: AddressScope,
}

/// Which addresses may be dialled for a server over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressScope {
    /// Public addresses, and `localhost` or a private address if the URL itself contains it. For URLs that the operator wrote.
    #[default]
    AsWritten,
    /// Public addresses only. For URLs from any other source.
    PublicOnly,
}

impl McpServerSpec {
    /// A server with the defaults: all tools, allowed without approval, 30 seconds to start and 60 seconds per call.
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

    /// Replaces `${VAR}` and `${VAR:-default}` in the command, arguments, variables, URL and headers. A variable that is not found and has
    /// no default stays as written. Also adds the variables of [`McpServerSpec::with_named_variables`].
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

    /// Adds the variables that a command line `docker run -e NAME …` names without a value, unless `env` already has them.
    #[must_use]
    pub fn with_named_variables(mut self, lookup: VariableLookup<'_>) -> Self {
        // An invalid command line is reported when the server is created.
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

    /// A digest that differs if another program or service is meant. Values of variables and headers are not part of it: they may be
    /// secrets.
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

    /// The values of variables and arguments whose names look sensitive, of all headers, and of keys in the address, by name. A name may occur
    /// several times.
    pub fn secrets(&self) -> impl Iterator<Item = (&str, &str)> {
        let (values, others) = match &self.transport {
            McpTransport::Stdio(stdio) => (&stdio.env, argument_secrets(&stdio.args)),
            McpTransport::Http(http) => (&http.headers, address_secrets(&http.url)),
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
            .chain(others)
    }
}

/// The secrets in a program's arguments: `--api-key=VALUE`, `--token VALUE`, `Authorization: Bearer VALUE`, and addresses with a password.
fn argument_secrets(arguments: &[String]) -> Vec<(&str, &str)> {
    let mut secrets = Vec::new();
    let mut option = "";
    for argument in arguments {
        let named = argument.split_once(['=', ':']).map(|(name, value)| (name, value.trim()));
        let mut readings = named.into_iter().chain([(option, argument.as_str())]);
        if let Some((name, value)) =
            readings.find(|(name, value)| conjure_base::is_sensitive_variable(name, value))
        {
            let name = if name.is_empty() { "argument" } else { name.trim_start_matches('-') };
            let bare = value.split_once(' ').map(|(_, token)| (name, token.trim()));
            secrets.extend([(name, value)].into_iter().chain(bare));
        }
        option = if argument.starts_with('-') && named.is_none() { argument } else { "" };
    }
    secrets
}

/// The secrets in an address: values of its query, and parts of its path that look like keys.
fn address_secrets(url: &str) -> Vec<(&str, &str)> {
    const MIN_KEY_BYTES: usize = 16;
    let is_key = |text: &str| text.len() >= MIN_KEY_BYTES && text.bytes().any(|byte| byte.is_ascii_digit());
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let fields = query.split(['&', '#']).filter_map(|field| field.split_once('='));
    let fields =
        fields.filter(|(name, value)| is_key(value) || conjure_base::is_sensitive_variable(name, value));
    let parts = place.split('/').skip(3).filter(|part| is_key(part)).map(|part| ("address", part));
    fields.chain(parts).collect()
}

/// Shows only the names of variables: a value may be a secret.
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

/// Shows only the names of headers: a value may be a secret.
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

    #[test]
    fn keys_in_arguments_and_addresses_are_secrets() {
        let arguments = [
            "-y",
            "mcp-remote",
            "https://u:pa55@host/x",
            "--api-key=k3y-one",
            "--token",
            "k3y:two",
            "--header",
            "Authorization: Bearer k3y-three",
            "--verbose",
            "plain:text",
        ];
        assert_eq!(
            argument_secrets(&arguments.map(str::to_owned)),
            [
                ("argument", "https://u:pa55@host/x"),
                ("api-key", "k3y-one"),
                ("token", "k3y:two"),
                ("Authorization", "Bearer k3y-three"),
                ("Authorization", "k3y-three"),
            ]
        );
        let url =
            "https://host.example/api/s/0123456789abcdef01/mcp?api_key=short&lang=en&id=0123456789abcdef#x";
        assert_eq!(
            address_secrets(url),
            [("api_key", "short"), ("id", "0123456789abcdef"), ("address", "0123456789abcdef01")]
        );
        assert_eq!(address_secrets("https://host.example/a/b"), []);
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

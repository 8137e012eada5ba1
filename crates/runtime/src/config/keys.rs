//! All keys of the configuration file with their meanings. The parser and the documentation share this list.

use conjure_skill::closest_match;
use toml::Table;

use crate::config::sections::mcp;
use crate::config::sections::models;

/// One key of the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigKey {
    /// Its table, such as `pool`. Empty for a key outside of tables.
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The meaning of the key, in one sentence.
    pub meaning: &'static str,
    /// An example of a value, as written in the file.
    pub example: &'static str,
}

const fn key(
    table: &'static str,
    name: &'static str,
    example: &'static str,
    meaning: &'static str,
) -> ConfigKey {
    ConfigKey { table, name, meaning, example }
}

/// Every key, in the order of the documentation.
pub const CONFIG_KEYS: &[ConfigKey] = &[
    key(
        "",
        "skill_paths",
        "[\"skills\"]",
        "Directories of skills; the first wins. Replaces the default scopes.",
    ),
    key("", "trusted_projects", "[\"~/work/app\"]", "Projects whose own skills may be loaded."),
    key("", "executor", "\"jail\"", "The kind of sandbox: `jail` (default), `docker` or `local`."),
    key("", "image", "\"conjure/sandbox:latest\"", "The image of containers."),
    key("", "runtime", "\"runsc\"", "The container runtime, instead of the engine's default."),
    key(
        "",
        "container_user",
        "\"1000:1000\"",
        "The user of commands in containers; the workspace's owner by default.",
    ),
    key(
        "",
        "volumes",
        "[\"/data:/data\"]",
        "More directories in containers, `HOST:TARGET`, or `HOST:TARGET:rw` to write.",
    ),
    key("", "engine", "\"unix:///run/docker.sock\"", "Where the container engine listens."),
    key("", "tool_timeout", "30", "Seconds that one tool call may take."),
    key("", "max_iterations", "25", "Model calls for one message, at most."),
    key(
        "",
        "network",
        "[\"pypi.org\"]",
        "What a sandbox may reach: `\"none\"` (default), `\"full\"`, or a list of hosts.",
    ),
    key(
        "",
        "private_addresses",
        "[\"10.1.0.0/16\"]",
        "Private addresses that all sandboxes may reach, also those of MCP servers, where `network` permits the host: for a package mirror of your own.",
    ),
    key("", "allowed_paths", "[\"/srv/data\"]", "Directories that tools may use beside the workspace."),
    key("", "data", "\"~/conjure-data\"", "The data directory."),
    key("", "memory", "\"512m\"", "Memory of a sandbox, at most; enforced or refused."),
    key("", "cpus", "1.5", "Processors of a sandbox, at most; enforced or refused."),
    key(
        "",
        "disk_limit",
        "\"watched\"",
        "Who enforces the workspace's quota: `watched` (default), or `kernel`, for jails of root.",
    ),
    key("", "require", "[\"memory\"]", "Boundaries that every sandbox must enforce, or `[\"all\"]`."),
    key("", "model", "\"ollama:qwen3\"", "The model of sessions that name none."),
    key("", "base_url", "\"https://api.anthropic.com\"", "The address of the Messages API."),
    key("", "profile", "\"beta\"", "The form of the Messages API: `beta` (default) or `current`."),
    key("", "max_tokens", "8192", "Tokens of one response, at most."),
    key("", "model_timeout", "600", "Seconds that one model call may take, with its retries."),
    key("pool", "jail", "4", "Warm jails that are ready at any time; 0 by default."),
    key("pool", "docker", "2", "Warm containers that are ready at any time; 0 by default."),
    key("pool", "max_age", "1800", "Seconds until an unused warm sandbox is replaced."),
    key(
        "pool",
        "starts_at_once",
        "2",
        "Sandboxes of a kind that are created at the same time; the number of processors by default.",
    ),
    key(
        "compaction",
        "threshold",
        "150000",
        "Input tokens from which a history is compacted; at four fifths of the model's context by default, where that is known.",
    ),
    key("compaction", "keep", "6", "Last messages that stay as they are."),
    key(
        "compaction",
        "service_threshold",
        "150000",
        "Input tokens from which the model service compacts; excludes `threshold`.",
    ),
    key("skills", "activation", "\"load\"", "How the model gets a skill: `load` (default) or `view`."),
    key(
        "skills",
        "delivery",
        "\"instructions\"",
        "Where an active skill's text is: `instructions` (default) or `result`.",
    ),
    key("skills", "max_active", "8", "Skills that are loaded at the same time, at most."),
    key(
        "skills",
        "allowed_tools",
        "\"ignore\"",
        "Whether `allowed-tools` pre-approves calls: `ignore` (default) or `honour`.",
    ),
    key(
        "skills",
        "interpreters",
        "{ R = [\"Rscript\"] }",
        "Programs for scripts, by extension, over the built-in table.",
    ),
    key("artifacts", "enabled", "true", "Whether sessions have artifacts."),
    key(
        "artifacts",
        "allowed_dirs",
        "[\"/uploads\"]",
        "Files may be registered beneath these only; anywhere by default.",
    ),
    key("artifacts", "max_file_size", "\"50m\"", "Bytes of a registered file, at most."),
    key("artifacts", "url_fetch_enabled", "true", "Whether URLs are fetched."),
    key("artifacts", "url_timeout", "30", "Seconds that a fetch may take."),
    key("artifacts", "url_max_size", "\"10m\"", "Bytes of a fetched URL, at most."),
    key("artifacts", "blocked_hosts", "[\"localhost\"]", "Hosts that are never fetched from."),
    key("artifacts", "allowed_schemes", "[\"https\"]", "Schemes of URLs that are fetched."),
    key("artifacts", "cache_fetched_urls", "true", "Whether fetched URLs are cached."),
    key("artifacts", "cache_ttl", "900", "Seconds that a fetched URL is fresh."),
    key(
        "artifacts",
        "session_ttl",
        "3600",
        "Seconds of idle time after which a session's artifacts expire, or `\"never\"`.",
    ),
    key(
        models::TABLE,
        "api",
        "\"chat\"",
        "The API that its service speaks: `messages`, `chat`, `responses` or `gemini`.",
    ),
    key(
        models::TABLE,
        "model",
        "\"qwen3:8b\"",
        "The service's name of the model; the name of the table by default.",
    ),
    key(
        models::TABLE,
        "base_url",
        "\"http://localhost:8000/v1\"",
        "The address of the service; the vendor's own by default.",
    ),
    key(
        models::TABLE,
        "key_env",
        "\"LOCAL_KEY\"",
        "The environment variable with the key; the vendor's own at the vendor's address, none elsewhere.",
    ),
    key(
        models::TABLE,
        "headers",
        "{ x-team = \"blue\" }",
        "More headers of each request; values that look like secrets are redacted.",
    ),
    key(models::TABLE, "body", "{ temperature = 0.2 }", "More members of each request's body."),
    key(models::TABLE, "max_tokens", "4096", "Tokens of one response, at most."),
    key(
        models::TABLE,
        "context_length",
        "32768",
        "Tokens that its context holds; histories are compacted at four fifths of it. A table knows the usual models.",
    ),
    key(
        models::TABLE,
        "price",
        "{ input = 0.3, output = 1.2 }",
        "Dollars for a million tokens; also `cache_read` and `cache_write`, which cost what input costs by default.",
    ),
    key(
        models::TABLE,
        "parallel_tool_calls",
        "false",
        "Whether one response may call several tools; the service decides by default.",
    ),
    key(
        models::TABLE,
        "fallback",
        "[\"anthropic:claude-haiku-4-5\"]",
        "Models that are tried in order when the service is overloaded or cannot be reached.",
    ),
    key(
        mcp::TABLE,
        "command",
        "\"uvx\"",
        "The program of a server that speaks over its standard input and output.",
    ),
    key(mcp::TABLE, "args", "[\"mcp-server-git\"]", "Its arguments."),
    key(
        mcp::TABLE,
        "env",
        "{ TOKEN = \"${GITHUB_TOKEN}\" }",
        "Variables that it sees; `${VAR}` stands for a variable of this process.",
    ),
    key(
        mcp::TABLE,
        "url",
        "\"https://mcp.example.com/mcp\"",
        "The address of a server that is reached by HTTP.",
    ),
    key(
        mcp::TABLE,
        "headers",
        "{ Authorization = \"Bearer ${TOKEN}\" }",
        "Headers of each request to it; `${VAR}` stands for a variable of this process.",
    ),
    key(
        mcp::TABLE,
        "required",
        "true",
        "Whether the first model call waits for its tools. By default they are added when it has started.",
    ),
    key(mcp::TABLE, "enabled_tools", "[\"git_status\"]", "The tools that are offered; all by default."),
    key(mcp::TABLE, "disabled_tools", "[\"git_reset\"]", "Tools that are not offered."),
    key(
        mcp::TABLE,
        "approval",
        "\"ask\"",
        "Whether its calls run at once (`allow`, default) or a person decides (`ask`).",
    ),
    key(mcp::TABLE, "tool_approval", "{ git_commit = \"ask\" }", "The same for single tools."),
    key(mcp::TABLE, "startup_timeout", "30", "Seconds that its start and its list of tools may take."),
    key(mcp::TABLE, "tool_timeout", "60", "Seconds that one call may take."),
    key(
        mcp::TABLE,
        "parallel_calls",
        "true",
        "Whether its calls run at the same time; by default those do whose tools say that they only read.",
    ),
    key(
        mcp::TABLE,
        "shared",
        "true",
        "Whether all sessions of a tenant share one process, which does not see their workspaces. By default each session has its own.",
    ),
    key(
        mcp::TABLE,
        "sampling",
        "true",
        "Whether it may ask the session's model in the middle of a call, at the cost of the tenant. By default it may not.",
    ),
    key(
        mcp::TABLE,
        "network",
        "[\"api.github.com\"]",
        "What its program may reach: `\"none\"`, `\"full\"` or a list of hosts. By default nothing. `npx`, `uvx` and the like also reach the package registries until the server answers, except with `\"none\"`.",
    ),
    key(
        mcp::TABLE,
        "sandbox",
        "\"local\"",
        "Where its program runs: in a sandbox of its own (`own`, default), or on this machine without isolation (`local`).",
    ),
    key(
        "serve",
        "models",
        "{ \"claude-*\" = \"ollama:qwen3\" }",
        "The model that answers for a name that the server's clients use; `*` stands for any text.",
    ),
    key(
        "serve",
        "skills",
        "{ xlsx = \"skills/xlsx\" }",
        "The directory of each skill that the server's clients name as one of the vendor's.",
    ),
    key(
        "serve",
        "requests_per_minute",
        "600",
        "How many requests each key may make in a minute; any number by default.",
    ),
    key(
        "serve",
        "private_mcp_servers",
        "true",
        "Whether agents may name MCP servers with private addresses, such as `localhost`; not by default.",
    ),
    key(
        "serve",
        "certificate",
        "\"tls/cert.pem\"",
        "The file of the server's certificate and its chain (PEM). With it, the server speaks TLS.",
    ),
    key("serve", "private_key", "\"tls/key.pem\"", "The file of the certificate's private key (PEM)."),
];

/// The names of the keys in a table. For an empty name, the top-level keys and tables.
pub(crate) fn names(table: &'static str) -> impl Iterator<Item = &'static str> + Clone {
    let mut last = "";
    CONFIG_KEYS.iter().filter_map(move |key| {
        if key.table == table {
            Some(key.name)
        } else if table.is_empty() && key.table != last {
            last = key.table;
            // `[models.NAME]` belongs to the top-level table `models`.
            Some(key.table.split_once('.').map_or(key.table, |(first, _)| first))
        } else {
            None
        }
    })
}

/// Refuses a table with an unknown key.
pub(crate) fn check(table: &Table, name: &'static str) -> Result<(), String> {
    let Some(key) = table.keys().find(|key| !names(name).any(|known| known == key.as_str())) else {
        return Ok(());
    };
    let near = closest_match(key, names(name)).map(|near| format!(", did you mean `{near}`?"));
    Err(format!("there is no `{key}`{}", near.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_keys_of_the_file() {
        let top: Vec<_> = names("").collect();
        assert!(
            top.ends_with(&[
                "model_timeout",
                "pool",
                "compaction",
                "skills",
                "artifacts",
                "models",
                "mcp",
                "serve"
            ]),
            "{top:?}"
        );
        assert_eq!(names("pool").collect::<Vec<_>>(), ["jail", "docker", "max_age", "starts_at_once"]);
    }
}

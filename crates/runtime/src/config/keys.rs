//! All keys of the configuration file with their meanings. The parser and the documentation share this list.

use std::path::Path;

use conjure_skill::closest_match;
use toml::{Table, Value};

use crate::config::error::ConfigError;
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

/// Declares the keys, table by table, each with an example and its meaning.
macro_rules! config_keys {
    ($($table:expr => { $($name:ident = $example:literal: $meaning:literal;)* })*) => {
        /// Every key, in the order of the documentation.
        pub const CONFIG_KEYS: &[ConfigKey] = &[$($(
            ConfigKey { table: $table, name: stringify!($name), meaning: $meaning, example: $example },
        )*)*];
    };
}

config_keys! {
    "" => {
        skill_paths = r#"["skills"]"#: "Directories of skills; the first wins. Replaces the default scopes.";
        trusted_projects = r#"["~/work/app"]"#: "Projects whose own skills may be loaded.";
        executor = r#""jail""#: "The kind of sandbox: `jail` (default), `docker` or `local`.";
        image = r#""conjure/sandbox:latest""#: "The image of containers.";
        runtime = r#""runsc""#: "The container runtime, instead of the engine's default.";
        container_user = r#""1000:1000""#: "The user of commands in containers; the workspace's owner by default.";
        volumes = r#"["/data:/data"]"#: "More directories in containers, `HOST:TARGET`, or `HOST:TARGET:rw` to write.";
        engine = r#""unix:///run/docker.sock""#: "Where the container engine listens.";
        tool_timeout = "30": "Seconds that one tool call may take.";
        max_iterations = "25": "Model calls for one message, at most.";
        network = r#"["pypi.org"]"#: "What a sandbox may reach: `\"none\"` (default), `\"full\"`, or a list of hosts.";
        private_addresses = r#"["10.1.0.0/16"]"#:
            "Private addresses that all sandboxes may reach, also those of MCP servers, where `network` permits the host: for a package mirror of your own.";
        allowed_paths = r#"["/srv/data"]"#: "Directories that tools may use beside the workspace.";
        data = r#""~/conjure-data""#: "The data directory.";
        memory = r#""512m""#: "Memory of a sandbox, at most; enforced or refused.";
        cpus = "1.5": "Processors of a sandbox, at most; enforced or refused.";
        disk_limit = r#""watched""#:
            "Who enforces the workspace's quota: `watched` (default), or `kernel`, for jails of root.";
        require = r#"["memory"]"#: "Boundaries that every sandbox must enforce, or `[\"all\"]`.";
        model = r#""ollama:qwen3""#: "The model of sessions that name none.";
        base_url = r#""https://api.anthropic.com""#: "The address of the Messages API.";
        profile = r#""beta""#: "The form of the Messages API: `beta` (default) or `current`.";
        max_tokens = "8192": "Tokens of one response, at most.";
        model_timeout = "600": "Seconds that one model call may take, with its retries.";
    }
    "pool" => {
        jail = "4": "Warm jails that are ready at any time; 0 by default.";
        docker = "2": "Warm containers that are ready at any time; 0 by default.";
        max_age = "1800": "Seconds until an unused warm sandbox is replaced.";
        starts_at_once = "2":
            "Sandboxes of a kind that are created at the same time; the number of processors by default.";
    }
    "compaction" => {
        threshold = "150000":
            "Input tokens from which a history is compacted; at four fifths of the model's context by default, where that is known.";
        keep = "6": "Last messages that stay as they are.";
        service_threshold = "150000": "Input tokens from which the model service compacts; excludes `threshold`.";
    }
    "skills" => {
        activation = r#""load""#: "How the model gets a skill: `load` (default) or `view`.";
        delivery = r#""instructions""#: "Where an active skill's text is: `instructions` (default) or `result`.";
        max_active = "8": "Skills that are loaded at the same time, at most.";
        allowed_tools = r#""ignore""#: "Whether `allowed-tools` pre-approves calls: `ignore` (default) or `honour`.";
        interpreters = r#"{ R = ["Rscript"] }"#: "Programs for scripts, by extension, over the built-in table.";
    }
    "artifacts" => {
        enabled = "true": "Whether sessions have artifacts.";
        allowed_dirs = r#"["/uploads"]"#: "Files may be registered beneath these only; anywhere by default.";
        max_file_size = r#""50m""#: "Bytes of a registered file, at most.";
        url_fetch_enabled = "true": "Whether URLs are fetched.";
        url_timeout = "30": "Seconds that a fetch may take.";
        url_max_size = r#""10m""#: "Bytes of a fetched URL, at most.";
        blocked_hosts = r#"["localhost"]"#: "Hosts that are never fetched from.";
        allowed_schemes = r#"["https"]"#: "Schemes of URLs that are fetched.";
        cache_fetched_urls = "true": "Whether fetched URLs are cached.";
        cache_ttl = "900": "Seconds that a fetched URL is fresh.";
        session_ttl = "3600": "Seconds of idle time after which a session's artifacts expire, or `\"never\"`.";
    }
    models::TABLE => {
        api = r#""chat""#: "The API that its service speaks: `messages`, `chat`, `responses` or `gemini`.";
        model = r#""qwen3:8b""#: "The service's name of the model; the name of the table by default.";
        base_url = r#""http://localhost:8000/v1""#: "The address of the service; the vendor's own by default.";
        key_env = r#""LOCAL_KEY""#:
            "The environment variable with the key; the vendor's own at the vendor's address, none elsewhere.";
        headers = r#"{ x-team = "blue" }"#: "More headers of each request; values that look like secrets are redacted.";
        body = "{ temperature = 0.2 }": "More members of each request's body.";
        max_tokens = "4096": "Tokens of one response, at most.";
        context_length = "32768":
            "Tokens that its context holds; histories are compacted at four fifths of it. A table knows the usual models.";
        price = "{ input = 0.3, output = 1.2 }":
            "Dollars for a million tokens; also `cache_read` and `cache_write`, which cost what input costs by default.";
        parallel_tool_calls = "false": "Whether one response may call several tools; the service decides by default.";
        fallback = r#"["anthropic:claude-haiku-4-5"]"#:
            "Models that are tried in order when the service is overloaded or cannot be reached.";
    }
    mcp::TABLE => {
        command = r#""uvx""#: "The program of a server that speaks over its standard input and output.";
        args = r#"["mcp-server-git"]"#: "Its arguments.";
        env = r#"{ TOKEN = "${GITHUB_TOKEN}" }"#:
            "Variables that it sees; `${VAR}` stands for a variable of this process.";
        url = r#""https://mcp.example.com/mcp""#: "The address of a server that is reached by HTTP.";
        headers = r#"{ Authorization = "Bearer ${TOKEN}" }"#:
            "Headers of each request to it; `${VAR}` stands for a variable of this process.";
        required = "true":
            "Whether the first model call waits for its tools. By default they are added when it has started.";
        enabled_tools = r#"["git_status"]"#: "The tools that are offered; all by default.";
        disabled_tools = r#"["git_reset"]"#: "Tools that are not offered.";
        approval = r#""ask""#: "Whether its calls run at once (`allow`, default) or a person decides (`ask`).";
        tool_approval = r#"{ git_commit = "ask" }"#: "The same for single tools.";
        startup_timeout = "30": "Seconds that its start and its list of tools may take.";
        tool_timeout = "60": "Seconds that one call may take.";
        parallel_calls = "true":
            "Whether its calls run at the same time; by default those do whose tools say that they only read.";
        shared = "true":
            "Whether all sessions of a tenant share one process, which does not see their workspaces. By default each session has its own.";
        sampling = "true":
            "Whether it may ask the session's model in the middle of a call, at the cost of the tenant. By default it may not.";
        network = r#"["api.github.com"]"#:
            "What its program may reach: `\"none\"`, `\"full\"` or a list of hosts. By default nothing. `npx`, `uvx` and the like also reach the package registries until the server answers, except with `\"none\"`.";
        sandbox = r#""local""#:
            "Where its program runs: in a sandbox of its own (`own`, default), or on this machine without isolation (`local`).";
    }
    "serve" => {
        models = r#"{ "claude-*" = "ollama:qwen3" }"#:
            "The model that answers for a name that the server's clients use; `*` stands for any text.";
        skills = r#"{ xlsx = "skills/xlsx" }"#:
            "The directory of each skill that the server's clients name as one of the vendor's.";
        requests_per_minute = "600": "How many requests each key may make in a minute; any number by default.";
        private_mcp_servers = "true":
            "Whether agents may name MCP servers with private addresses, such as `localhost`; not by default.";
        certificate = r#""tls/cert.pem""#:
            "The file of the server's certificate and its chain (PEM). With it, the server speaks TLS.";
        private_key = r#""tls/key.pem""#: "The file of the certificate's private key (PEM).";
    }
}

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

/// The key at a path in the file, such as `pool.jail` or `models.fast.api`.
pub(crate) fn at_path(path: &str) -> Option<&'static ConfigKey> {
    CONFIG_KEYS.iter().find(|key| {
        let own = key.table.split('.').filter(|part| !part.is_empty()).chain([key.name]);
        own.clone().count() == path.split('.').count()
            && own.zip(path.split('.')).all(|(own, part)| own == "NAME" || own == part)
    })
}

/// Refuses a file with an unknown key.
pub(crate) fn check(path: &Path, file: &Table) -> Result<(), ConfigError> {
    check_table(path, "", "", file)?;
    for (name, value) in file {
        let mut tables = CONFIG_KEYS.iter().map(|key| key.table);
        let known = tables.find(|table| table.split('.').next() == Some(name));
        let (Some(known), Value::Table(table)) = (known, value) else { continue };
        if known == name {
            check_table(path, known, &format!("{name}."), table)?;
            continue;
        }
        for (member, value) in table {
            if let Value::Table(table) = value {
                check_table(path, known, &format!("{name}.{member}."), table)?;
            }
        }
    }
    Ok(())
}

/// Refuses a table with a key that is not among those of the known table `known`.
fn check_table(path: &Path, known: &'static str, prefix: &str, table: &Table) -> Result<(), ConfigError> {
    let Some(key) = table.keys().find(|key| !names(known).any(|name| name == key.as_str())) else {
        return Ok(());
    };
    let suggestion = match key.as_str() {
        "key" | "api_key" if known == models::TABLE => Some("key_env"),
        _ => closest_match(key, names(known)),
    };
    Err(ConfigError::UnknownKey {
        path: path.to_owned(),
        key: format!("{prefix}{key}"),
        suggestion,
        known: names(known).collect(),
    })
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

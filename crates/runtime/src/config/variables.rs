//! Every environment variable that Conjure knows, with its meaning.

/// One environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The meaning of the variable, in one sentence.
    pub meaning: &'static str,
}

const fn variable(name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, meaning }
}

pub(super) const CONFIG: Variable =
    variable("CONJURE_CONFIG", "The configuration file, instead of `~/.conjure/config.toml`; it must exist.");
pub(super) const SKILL_PATHS: Variable = variable(
    "CONJURE_SKILL_PATHS",
    "Folders of skills, separated by `:`; the first wins. Replaces the default scopes.",
);
pub(super) const TRUSTED_PROJECTS: Variable = variable(
    "CONJURE_TRUSTED_PROJECTS",
    "Project folders, separated by `:`, whose `.agents/skills`, `.conjure/skills` and `.claude/skills` may be loaded.",
);
pub(super) const EXECUTOR: Variable =
    variable("CONJURE_EXECUTOR", "The kind of sandbox: `jail` (the default), `docker` or `local`.");
pub(super) const IMAGE: Variable =
    variable("CONJURE_IMAGE", "The image of containers, instead of `conjure/sandbox:latest`.");
pub(super) const RUNTIME: Variable =
    variable("CONJURE_RUNTIME", "The runtime of containers, such as `runsc`, instead of the engine's own.");
pub(super) const CONTAINER_USER: Variable = variable(
    "CONJURE_CONTAINER_USER",
    "As whom commands run in containers, `USER:GROUP`, instead of as the workspace's owner.",
);
pub(super) const VOLUMES: Variable = variable(
    "CONJURE_VOLUMES",
    "More folders in containers, separated by `,`: `HOST:TARGET`, or `HOST:TARGET:rw` to write.",
);
pub(super) const TOOL_TIMEOUT: Variable =
    variable("CONJURE_TOOL_TIMEOUT", "How long one tool call may take, in seconds: `30`, `0.5`.");
pub(super) const MAX_ITERATIONS: Variable =
    variable("CONJURE_MAX_ITERATIONS", "How often the model may be called for one message: `25`.");
pub(super) const NETWORK: Variable =
    variable("CONJURE_NETWORK", "What a sandbox may reach: `none`, `full`, or host names separated by `,`.");
pub(super) const PRIVATE_ADDRESSES: Variable = variable(
    "CONJURE_PRIVATE_ADDRESSES",
    "Private addresses that sandboxes may reach, by hosts that their network permits, separated by `,`: `10.1.0.0/16`.",
);
pub(super) const ALLOWED_PATHS: Variable = variable(
    "CONJURE_ALLOWED_PATHS",
    "Folders that tools may read and write beside the workspace, separated by `:`.",
);
pub(super) const DATA: Variable = variable(
    "CONJURE_DATA",
    "The data directory, instead of `conjure` in `XDG_DATA_HOME`: sessions, workspaces, sandboxes, stored content.",
);
pub(super) const MEMORY: Variable = variable(
    "CONJURE_MEMORY",
    "How much memory a sandbox may use: `512m`, `2g`. A sandbox that cannot enforce it is refused.",
);
pub(super) const CPUS: Variable = variable(
    "CONJURE_CPUS",
    "How many processors a sandbox may keep busy: `0.5`. A sandbox that cannot enforce it is refused.",
);
pub(super) const DISK_LIMIT: Variable = variable(
    "CONJURE_DISK_LIMIT",
    "Who keeps workspaces within their limit of the disk: `watched` (the default), or `kernel`, for jails of root.",
);
pub(super) const REQUIRE: Variable = variable(
    "CONJURE_REQUIRE",
    "What a sandbox must enforce, separated by `,`: `filesystem`, `network`, `memory` and others, or `all`.",
);
pub(super) const PROFILE: Variable = variable(
    "CONJURE_PROFILE",
    "Which form of the Messages API is spoken: `beta` (the default) or `current`.",
);
pub(super) const MAX_TOKENS: Variable =
    variable("CONJURE_MAX_TOKENS", "How many tokens one answer of the model may have: `8192`.");
pub(super) const MODEL_TIMEOUT: Variable = variable(
    "CONJURE_MODEL_TIMEOUT",
    "How long one model call may take, its retries included, in seconds: `600`.",
);
pub(super) const ARTIFACTS: Variable = variable(
    "CONJURE_ARTIFACTS",
    "What sessions may be given: `on` (the default), `files` without URLs that are fetched, or `off`.",
);
pub(super) const LOG: Variable = variable(
    "CONJURE_LOG",
    "What the command logs to standard error, as a filter: `info`, `conjure_sandbox=debug`. Off by default.",
);
pub(super) const HOME: Variable = variable("HOME", "The folder that `~` stands for.");
pub(super) const NO_COLOR: Variable =
    variable("NO_COLOR", "When set and not empty, the command writes no colours.");
pub(super) const TERM: Variable = variable("TERM", "`dumb` means a terminal without colours.");
pub(super) const API_KEY: Variable =
    variable("ANTHROPIC_API_KEY", "The key for models of the Messages API. It is never printed.");
pub(super) const BASE_URL: Variable =
    variable("ANTHROPIC_BASE_URL", "Where the Messages API is, instead of `https://api.anthropic.com`.");
pub(super) const MODEL: Variable =
    variable("CONJURE_MODEL", "The model of sessions that name none: a configured name, or `VENDOR:NAME`.");
pub(super) const OPENAI_KEY: Variable =
    variable("OPENAI_API_KEY", "The key for models `openai:NAME`. It is never printed.");
pub(super) const OPENAI_URL: Variable = variable(
    "OPENAI_BASE_URL",
    "Where models `openai:NAME` are, instead of `https://api.openai.com/v1`; another host speaks Chat Completions.",
);
pub(super) const GEMINI_KEY: Variable =
    variable("GEMINI_API_KEY", "The key for models `gemini:NAME`. It is never printed.");
pub(super) const OLLAMA_HOST: Variable =
    variable("OLLAMA_HOST", "Where models `ollama:NAME` are, instead of `127.0.0.1:11434`.");
pub(super) const VAULT_KEY: Variable = variable(
    "CONJURE_VAULT_KEY",
    "The key that seals the credentials in vaults, 64 hex digits, instead of the one in `vault.key` in the data folder. It is never printed.",
);
pub(super) const DOCKER_HOST: Variable = variable(
    "DOCKER_HOST",
    "Where the container engine listens: `unix:///run/docker.sock`, `tcp://host:2375`.",
);
pub(super) const DATA_HOME: Variable =
    variable("XDG_DATA_HOME", "Where programs keep their data, instead of `~/.local/share`.");
pub(super) const NOTIFY_SOCKET: Variable = variable(
    "NOTIFY_SOCKET",
    "Where systemd listens, which `conjure serve` tells that it is ready. systemd sets it.",
);
pub(super) const RUNTIME_DIR: Variable =
    variable("XDG_RUNTIME_DIR", "The directory with the sockets of a rootless Docker or Podman.");

/// Every variable that Conjure reads, in the order of the documentation.
pub const VARIABLES: &[Variable] = &[
    CONFIG,
    SKILL_PATHS,
    TRUSTED_PROJECTS,
    EXECUTOR,
    IMAGE,
    RUNTIME,
    CONTAINER_USER,
    VOLUMES,
    TOOL_TIMEOUT,
    MAX_ITERATIONS,
    NETWORK,
    PRIVATE_ADDRESSES,
    ALLOWED_PATHS,
    DATA,
    MEMORY,
    CPUS,
    DISK_LIMIT,
    REQUIRE,
    MODEL,
    PROFILE,
    MAX_TOKENS,
    MODEL_TIMEOUT,
    ARTIFACTS,
    LOG,
    HOME,
    NO_COLOR,
    TERM,
    API_KEY,
    BASE_URL,
    OPENAI_KEY,
    OPENAI_URL,
    GEMINI_KEY,
    OLLAMA_HOST,
    VAULT_KEY,
    DOCKER_HOST,
    DATA_HOME,
    RUNTIME_DIR,
    NOTIFY_SOCKET,
];

/// The key variables of model services that need no configuration.
pub const MODEL_KEYS: [&str; 3] = [API_KEY.name, OPENAI_KEY.name, GEMINI_KEY.name];

//! Every environment variable that Conjure knows, with its meaning.

/// One environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The meaning of the variable, in one sentence.
    pub meaning: &'static str,
}

/// Declares the variables, each as a constant, and the list of all.
macro_rules! variables {
    ($($constant:ident = $name:literal: $meaning:literal;)*) => {
        $(pub(super) const $constant: Variable = Variable { name: $name, meaning: $meaning };)*

        /// Every variable that Conjure reads, in the order of the documentation.
        pub const VARIABLES: &[Variable] = &[$($constant),*];
    };
}

variables! {
    CONFIG = "CONJURE_CONFIG": "The configuration file, instead of `~/.conjure/config.toml`; it must exist.";
    SKILL_PATHS = "CONJURE_SKILL_PATHS":
        "Directories of skills, separated by `:`; the first wins. Replaces the default scopes.";
    TRUSTED_PROJECTS = "CONJURE_TRUSTED_PROJECTS":
        "Project directories, separated by `:`, whose `.agents/skills`, `.conjure/skills` and `.claude/skills` may be loaded.";
    EXECUTOR = "CONJURE_EXECUTOR": "The kind of sandbox: `jail` (the default), `docker` or `local`.";
    IMAGE = "CONJURE_IMAGE": "The image of containers, instead of `conjure/sandbox:latest`.";
    RUNTIME = "CONJURE_RUNTIME": "The runtime of containers, such as `runsc`, instead of the engine's own.";
    CONTAINER_USER = "CONJURE_CONTAINER_USER":
        "As whom commands run in containers, `USER:GROUP`, instead of as the workspace's owner.";
    VOLUMES = "CONJURE_VOLUMES":
        "More directories in containers, separated by `,`: `HOST:TARGET`, or `HOST:TARGET:rw` to write.";
    TOOL_TIMEOUT = "CONJURE_TOOL_TIMEOUT": "How long one tool call may take, in seconds: `30`, `0.5`.";
    MAX_ITERATIONS = "CONJURE_MAX_ITERATIONS": "How often the model may be called for one message: `25`.";
    NETWORK = "CONJURE_NETWORK": "What a sandbox may reach: `none`, `full`, or host names separated by `,`.";
    PRIVATE_ADDRESSES = "CONJURE_PRIVATE_ADDRESSES":
        "Private addresses that sandboxes may reach, by hosts that their network permits, separated by `,`: `10.1.0.0/16`.";
    ALLOWED_PATHS = "CONJURE_ALLOWED_PATHS":
        "Directories that tools may read and write beside the workspace, separated by `:`.";
    DATA = "CONJURE_DATA":
        "The data directory, instead of `conjure` in `XDG_DATA_HOME`: sessions, workspaces, sandboxes, stored content.";
    MEMORY = "CONJURE_MEMORY":
        "How much memory a sandbox may use: `512m`, `2g`. A sandbox that cannot enforce it is refused.";
    CPUS = "CONJURE_CPUS":
        "How many processors a sandbox may keep busy: `0.5`. A sandbox that cannot enforce it is refused.";
    DISK_LIMIT = "CONJURE_DISK_LIMIT":
        "Who keeps workspaces within their limit of the disk: `watched` (the default), or `kernel`, for jails of root.";
    REQUIRE = "CONJURE_REQUIRE":
        "What a sandbox must enforce, separated by `,`: `filesystem`, `network`, `memory` and others, or `all`.";
    MODEL = "CONJURE_MODEL": "The model of sessions that name none: a configured name, or `VENDOR:NAME`.";
    PROFILE = "CONJURE_PROFILE": "Which form of the Messages API is spoken: `beta` (the default) or `current`.";
    MAX_TOKENS = "CONJURE_MAX_TOKENS": "How many tokens one answer of the model may have: `8192`.";
    MODEL_TIMEOUT = "CONJURE_MODEL_TIMEOUT":
        "How long one model call may take, its retries included, in seconds: `600`.";
    ARTIFACTS = "CONJURE_ARTIFACTS":
        "What sessions may be given: `on` (the default), `files` without URLs that are fetched, or `off`.";
    LOG = "CONJURE_LOG":
        "What the command logs to standard error, as a filter: `info`, `conjure_sandbox=debug`. Off by default.";
    HOME = "HOME": "The directory that `~` stands for.";
    NO_COLOR = "NO_COLOR": "When set and not empty, the command writes no colours.";
    TERM = "TERM": "`dumb` means a terminal without colours.";
    API_KEY = "ANTHROPIC_API_KEY": "The key for models of the Messages API. It is never printed.";
    BASE_URL = "ANTHROPIC_BASE_URL": "Where the Messages API is, instead of `https://api.anthropic.com`.";
    OPENAI_KEY = "OPENAI_API_KEY": "The key for models `openai:NAME`. It is never printed.";
    OPENAI_URL = "OPENAI_BASE_URL":
        "Where models `openai:NAME` are, instead of `https://api.openai.com/v1`; another host speaks Chat Completions.";
    GEMINI_KEY = "GEMINI_API_KEY": "The key for models `gemini:NAME`. It is never printed.";
    OLLAMA_HOST = "OLLAMA_HOST": "Where models `ollama:NAME` are, instead of `127.0.0.1:11434`.";
    VAULT_KEY = "CONJURE_VAULT_KEY":
        "The key that seals the credentials in vaults, 64 hex digits, instead of the one in `vault.key` in the data directory. It is never printed.";
    DOCKER_HOST = "DOCKER_HOST": "Where the container engine listens: `unix:///run/docker.sock`, `tcp://host:2375`.";
    DATA_HOME = "XDG_DATA_HOME": "Where programs keep their data, instead of `~/.local/share`.";
    RUNTIME_DIR = "XDG_RUNTIME_DIR": "The directory with the sockets of a rootless Docker or Podman.";
    NOTIFY_SOCKET = "NOTIFY_SOCKET":
        "Where systemd listens, which `conjure serve` tells that it is ready. systemd sets it.";
}

/// The key variables of model services that need no configuration.
pub const MODEL_KEYS: [&str; 3] = [API_KEY.name, OPENAI_KEY.name, GEMINI_KEY.name];

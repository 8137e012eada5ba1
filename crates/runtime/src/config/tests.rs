//! Behaviour of the layers, the file and the variables, through the public types.

use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_conversation::{CompactionPolicy, SkillActivation};
use conjure_sandbox::{Boundary, Isolation, NetworkPolicy};
use conjure_skill::{Scope, ScopeKind, Trust};

use super::*;

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn layered(code: Settings, pairs: &[(&str, &str)], text: &str) -> Result<Config, ConfigError> {
    let (_dir, path) = file(text);
    Config::from_layers(code, &ProcessEnv::from_pairs(pairs.iter().copied()), Some(&path))
}

/// Checks that a file with this text is refused, and that the error or its hint has this part.
#[track_caller]
fn check_refused(text: &str, part: &str) {
    let (message, hint) = hint_of(text);
    let told = format!("{message}; {}", hint.unwrap_or_default());
    assert!(told.contains(part), "{text}: {told}");
}

fn hint_of(text: &str) -> (String, Option<String>) {
    let error = layered(Settings::default(), &[], text).unwrap_err();
    (error.to_string(), error.hint())
}

#[test]
fn code_wins_over_the_environment_and_that_over_the_file_and_that_over_the_defaults() {
    let code = Settings { tool_timeout: Some(Duration::from_secs(1)), ..Settings::default() };
    let variables = [("CONJURE_TOOL_TIMEOUT", "2"), ("CONJURE_MAX_ITERATIONS", "2")];
    let text = "tool_timeout = 3\nmax_iterations = 3\nnetwork = \"full\"\n";
    let config = layered(code, &variables, text).unwrap();
    assert_eq!(config.tool_timeout(), Duration::from_secs(1));
    assert_eq!(config.max_iterations(), 2);
    assert_eq!(config.network(), &NetworkPolicy::Full);
    assert!(config.allowed_paths().is_empty());
    assert_eq!(config.executor(), ExecutorKind::Jail);
}

#[test]
fn the_defaults_are_those_of_the_specification() {
    let config = Config::from_layers(Settings::default(), &ProcessEnv::default(), None).unwrap();
    assert_eq!(config, Config::default());
    assert_eq!((config.tool_timeout(), config.max_iterations()), (Duration::from_secs(30), 25));
    assert_eq!(config.network(), &NetworkPolicy::None);
}

#[test]
fn a_session_lays_its_own_over_the_configuration_and_the_rest_stays() {
    let config =
        layered(Settings::default(), &[("HOME", "/home/u")], "allowed_paths = [\"~/data\"]").unwrap();
    let session =
        config.with(Settings { max_iterations: Some(3), ..Settings::default() }).expect("a good setting");
    assert_eq!(session.max_iterations(), 3);
    assert_eq!(session.allowed_paths(), [PathBuf::from("/home/u/data")]);
    let wrong = config.with(Settings { max_iterations: Some(0), ..Settings::default() });
    assert_eq!(
        wrong.unwrap_err().to_string(),
        "the setting `max_iterations` cannot be used: it must be at least 1"
    );
}

#[test]
fn an_unknown_key_names_the_file_the_key_and_what_was_meant() {
    let (message, hint) = hint_of("max_iteration = 3");
    assert!(message.ends_with("config.toml` has an unknown key `max_iteration`"), "{message}");
    assert_eq!(hint.as_deref(), Some("did you mean `max_iterations`?"));
    let (_, hint) = hint_of("colour = true");
    assert!(hint.unwrap().starts_with("the known keys are skill_paths, "));
}

#[test]
fn a_value_of_the_wrong_kind_is_reported_with_its_place() {
    check_refused(
        "network = \"none\"\nmax_iterations = \"many\"\n",
        "line 2: `max_iterations`: it is a text, expected a whole number",
    );
    for (text, part) in [
        ("tool_timeout = -1", "line 1: `tool_timeout`: -1 is not a number of seconds"),
        ("[models.a]", "line 1: `models.a`: missing field `api`; write it as in `api = \"chat\"`"),
        (
            "[models.a]\napi = 'chat'\nprice = { input = 1 }",
            "missing field `output`; write it as in `price = { input = 0.3",
        ),
        ("tool_timeout = '30'", "it is a text, expected a number; write it as in `tool_timeout = 30`"),
        ("tool_timeout = nan", "is not a number of seconds"),
        ("tool_timeout = true", "invalid type: boolean `true`, expected a number"),
        ("network = 3", "`none`, `full` or a list of names of hosts is needed"),
        ("private_addresses = [\"10.0.0.1/8\"]", "`private_addresses`: "),
        ("private_addresses = \"10.0.0.0/8\"", "expected a list"),
        ("network = [\"a\", 3]", "`none`, `full` or a list of names of hosts is needed"),
        ("network = \"bridge\"", "use `full`"),
        ("network = [\"full\", \"example.org\"]", "stand alone"),
        (
            "executor = \"locale\"",
            "`executor`: unknown variant `locale`, expected one of `jail`, `docker`, `local`",
        ),
        ("max_iterations = 0", "at least 1"),
        ("memory = 0", "memory must be 8 MiB to 64 TiB, and is 0 bytes"),
        ("memory = -1", "a size such as \"512m\" or a number of bytes is needed"),
        ("memory = \"1x\"", "`1x` is not a size"),
        ("cpus = 0", "the number of processors must be 0.05 to 4096, and is 0"),
        ("cpus = true", "`cpus`: invalid type: boolean `true`, expected a number"),
        ("require = [\"disc\"]", "there is no boundary `disc`"),
        ("= 3", "line 1"),
    ] {
        check_refused(text, part);
    }
}

#[test]
fn the_error_for_a_value_does_not_show_what_may_be_a_secret() {
    for text in [
        "[models.a]\napi = 'chat'\nheaders = 'secret'",
        "[models.a]\napi = 'chat'\nheaders = { a = 'secret', b = 1 }",
        "[models.a]\napi = 'chat'\nkey_env = 'secret-1'",
        "[models.a]\napi = 'chat'\napi_key = 'secret'",
        "[mcp.a]\ncommand = 'a'\nenv = 'secret'",
    ] {
        let (message, hint) = hint_of(text);
        assert!(!format!("{message} {hint:?}").contains("secret"), "{message} {hint:?}");
    }
}

#[test]
fn the_key_of_a_model_or_server_is_named_with_its_table() {
    for (text, part) in [
        (
            "[models.a]\napi = 'chat'\nbase_uri = 'x'",
            "an unknown key `models.a.base_uri`; did you mean `base_url`?",
        ),
        (
            "[models.a]\napi = 'chat'\nkey = 'sk-1'",
            "unknown key `models.a.key`; put the key into an environment variable",
        ),
        (
            "[models.a]\napi = 'chat'\nkeyenv = 'LOCAL_KEY'",
            "unknown key `models.a.keyenv`; did you mean `key_env`?",
        ),
        ("[mcp.git]\ncomand = 'a'", "an unknown key `mcp.git.comand`; did you mean `command`?"),
        ("[serve]\nmodel = 1", "an unknown key `serve.model`; did you mean `models`?"),
        ("[models.a]\napi = 'chat'\n\nmax_tokens = true", "line 4: `models.a.max_tokens`: "),
        (
            "[mcp.a]\ncommand = 'a'\n[mcp.b]\nshared = true",
            "line 3: `mcp.b`: it has neither `command` nor `url`",
        ),
    ] {
        check_refused(text, part);
    }
}

#[test]
fn a_variable_that_cannot_be_used_is_named() {
    for (name, value, reason) in [
        ("CONJURE_TOOL_TIMEOUT", "soon", "`soon` is not a number of seconds"),
        ("CONJURE_MAX_ITERATIONS", "-1", "`-1` is not a whole number"),
        ("CONJURE_EXECUTOR", "cloud", "there is no sandbox `cloud`; there are `jail`, `docker` and `local`"),
        ("CONJURE_MEMORY", "much", "`much` is not a size, such as `512m` or `2g`"),
        ("CONJURE_CPUS", "two", "`two` is not a number of processors, such as `2` or `0.5`"),
        ("CONJURE_NETWORK", "host", "there is no network `host`: use `full` to reach any public address"),
    ] {
        let error = layered(Settings::default(), &[(name, value)], "").unwrap_err();
        assert_eq!(error.to_string(), format!("the environment variable {name} cannot be used: {reason}"));
    }
}

#[test]
fn an_empty_variable_says_nothing() {
    let config =
        layered(Settings::default(), &[("CONJURE_MAX_ITERATIONS", "")], "max_iterations = 7").unwrap();
    assert_eq!(config.max_iterations(), 7);
}

#[test]
fn the_home_directory_is_expanded_and_relative_paths_start_at_the_file() {
    let text = "skill_paths = ['~/s', 'mine', '/abs']\n[serve]\ncertificate = 'tls/cert.pem'\nprivate_key = '~/key.pem'\n\
                skills = { xlsx = 'xlsx' }\n";
    let (dir, path) = file(text);
    let environment = ProcessEnv::from_pairs([("HOME", "/home/u")]);
    let config = Config::from_layers(Settings::default(), &environment, Some(&path)).unwrap();
    let dirs: Vec<PathBuf> = config.skill_scopes(None).into_iter().map(|dir| dir.path).collect();
    assert_eq!(dirs, [PathBuf::from("/home/u/s"), dir.path().join("mine"), PathBuf::from("/abs")]);
    let serve = config.serve();
    assert_eq!(serve.certificate, Some(dir.path().join("tls/cert.pem")));
    assert_eq!(serve.private_key, Some(PathBuf::from("/home/u/key.pem")));
    assert_eq!(serve.skills["xlsx"], dir.path().join("xlsx"));
}

#[test]
fn without_a_home_a_path_that_needs_it_is_an_error() {
    let error = layered(Settings::default(), &[], "allowed_paths = [\"~/data\"]").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the setting `allowed_paths` cannot be used: `~/data` needs HOME, which is not set"
    );
}

#[test]
fn a_projects_own_skills_are_trusted_only_when_the_user_says_so() {
    let (home, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pairs = [("HOME", home.path()), ("CONJURE_TRUSTED_PROJECTS", project.path())];
    let scopes = |pairs: &[(&str, &Path)]| {
        let environment = ProcessEnv::from_pairs(pairs.iter().copied());
        let config = Config::from_layers(Settings::default(), &environment, None).unwrap();
        config.skill_scopes(Some(project.path()))
    };
    let of = |root: &Path, kind, trust| {
        [".agents/skills", ".conjure/skills", ".claude/skills"]
            .map(|dir| Scope { path: root.join(dir), kind, trust })
            .to_vec()
    };
    let user = of(home.path(), ScopeKind::User, Trust::Trusted);
    let expected = |trust| [of(project.path(), ScopeKind::Project, trust), user.clone()].concat();
    assert_eq!(scopes(&pairs[..1]), expected(Trust::Untrusted));
    assert_eq!(scopes(&pairs), expected(Trust::Trusted));
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_and_a_device_is_not_read_at_all() {
    let missing = Config::from_layers(
        Settings::default(),
        &ProcessEnv::default(),
        Some(Path::new("/nowhere/config.toml")),
    );
    assert!(matches!(missing, Err(ConfigError::Unreadable { .. })));
    let device =
        Config::from_layers(Settings::default(), &ProcessEnv::default(), Some(Path::new("/dev/zero")));
    assert!(matches!(device, Err(ConfigError::Invalid { .. })));
}

#[test]
fn debug_shows_no_values_of_the_environment() {
    let environment = ProcessEnv::from_pairs([("ANTHROPIC_API_KEY", "sk-secret"), ("UNKNOWN", "x")]);
    assert_eq!(format!("{environment:?}"), r#"["ANTHROPIC_API_KEY"]"#);
    assert_eq!(environment.model_keys().count(), 1);
}

#[test]
fn every_variable_is_declared_once() {
    let mut names: Vec<&str> = VARIABLES.iter().map(|variable| variable.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), VARIABLES.len());
}

#[test]
fn the_service_is_configured_in_all_layers() {
    let text = "base_url = \"https://file\"\nprofile = \"current\"\nmax_tokens = 3\nmodel_timeout = 0.5\n";
    let config = layered(Settings::default(), &[], text).unwrap();
    assert_eq!((config.base_url(), config.profile()), (Some("https://file"), ApiProfile::Current));
    assert_eq!((config.max_tokens(), config.model_timeout()), (Some(3), Some(Duration::from_millis(500))));

    let variables = [
        ("ANTHROPIC_BASE_URL", "https://environment"),
        ("CONJURE_PROFILE", "beta"),
        ("CONJURE_MAX_TOKENS", "2"),
        ("CONJURE_MODEL_TIMEOUT", "2"),
    ];
    let code = Settings { max_tokens: Some(1), ..Settings::default() };
    let config = layered(code, &variables, text).unwrap();
    assert_eq!((config.base_url(), config.profile()), (Some("https://environment"), ApiProfile::Beta));
    assert_eq!((config.max_tokens(), config.model_timeout()), (Some(1), Some(Duration::from_secs(2))));

    for (text, expected) in [
        ("profile = \"gamma\"", "`profile`: unknown variant `gamma`, expected `beta` or `current`"),
        ("max_tokens = 0", "must be at least 1"),
        ("max_tokens = -1", "max_tokens"),
        ("model_timeout = 0", "model_timeout"),
    ] {
        check_refused(text, expected);
    }
}

#[test]
fn compaction_is_a_table_of_the_file_and_off_unless_it_has_a_threshold() {
    assert_eq!(Config::default().compaction(), None);
    let keep = CompactionSettings { keep: Some(4), ..CompactionSettings::default() };
    let code = Settings { compaction: Some(keep), ..Settings::default() };
    assert_eq!(layered(code.clone(), &[], "").unwrap().compaction(), None);
    let config = layered(code, &[], "[compaction]\nthreshold = 150000\nkeep = 9\n").unwrap();
    assert_eq!(config.compaction(), Some(CompactionPolicy::with_threshold(150_000).with_kept_messages(4)));
    for (text, expected) in [
        ("treshold = 1", "an unknown key `compaction.treshold`; did you mean `threshold`?"),
        ("threshold = 0", "`compaction`: `threshold` must be at least 1"),
        (
            "threshold = -5",
            "line 2: `compaction.threshold`: invalid value: integer `-5`, expected a whole number",
        ),
        ("service_threshold = 0", "`service_threshold` must be at least 1"),
        ("keep = 0", "`keep` must be at least 1"),
        ("keep = \"all\"", "`compaction.keep`: it is a text, expected a whole number"),
    ] {
        check_refused(&format!("[compaction]\n{text}"), expected);
    }
    let config = layered(Settings::default(), &[], "[compaction]\nservice_threshold = 100000\n").unwrap();
    assert_eq!((config.compaction(), config.service_compaction().map(u64::from)), (None, Some(100_000)));
    let zero = CompactionSettings { threshold: Some(0), ..CompactionSettings::default() };
    assert!(layered(Settings { compaction: Some(zero), ..Settings::default() }, &[], "").is_err());
}

#[test]
fn pools_are_a_table_of_the_file_and_each_setting_is_laid_over() {
    assert_eq!(Config::default().pool(), PoolSettings::default());
    let text = "[pool]\njail = 4\ndocker = 2\nmax_age = 0.5\n";
    let code = PoolSettings { jail: Some(0), starts_at_once: Some(3), ..PoolSettings::default() };
    let config = layered(Settings { pool: Some(code), ..Settings::default() }, &[], text).unwrap();
    let expected = PoolSettings {
        jail: Some(0),
        docker: Some(2),
        max_age: Some(Duration::from_millis(500)),
        starts_at_once: Some(3),
    };
    assert_eq!(config.pool(), expected);
    for (text, expected) in [
        ("jial = 1", "an unknown key `pool.jial`; did you mean `jail`?"),
        ("jail = -1", "`pool.jail`: invalid value: integer `-1`, expected a whole number"),
        ("jail = \"many\"", "`pool.jail`: it is a text, expected a whole number"),
        ("docker = 100000", "`pool`: 100000 is more than 10000"),
        ("starts_at_once = 0", "`starts_at_once` must be at least 1"),
        ("max_age = 0", "`pool.max_age`: 0 is not a number of seconds"),
    ] {
        check_refused(&format!("[pool]\n{text}"), expected);
    }
    check_refused("pool = 3", "line 1: `pool`: invalid type: integer `3`, expected a table");
}

#[test]
fn skills_are_a_table_of_the_file_and_each_setting_is_laid_over() {
    assert_eq!(Config::default().skills(), SkillSettings::default());
    let text = "[skills]\nactivation = \"view\"\nmax_active = 3\n[skills.interpreters]\nR = \"Rscript\"\n\".lua\" = []\n";
    let code = SkillSettings { activation: Some(SkillActivation::Load), ..SkillSettings::default() };
    let config = layered(Settings { skills: Some(code), ..Settings::default() }, &[], text).unwrap();
    let skills = config.skills();
    assert_eq!(
        (skills.activation, skills.delivery, skills.active_limit()),
        (Some(SkillActivation::Load), None, 3)
    );
    assert_eq!(skills.interpreter_table().for_script("plot.r").unwrap(), ["Rscript"]);
    assert_eq!(skills.interpreter_table().for_script("old.lua"), None);
    for (text, expected) in [
        ("activaton = \"load\"", "an unknown key `skills.activaton`; did you mean `activation`?"),
        ("activation = \"push\"", "`skills.activation`: unknown variant `push`, expected `load` or `view`"),
        ("activation = 1", "`skills.activation`: wanted string or table"),
        (
            "delivery = \"body\"",
            "`skills.delivery`: unknown variant `body`, expected `instructions` or `result`",
        ),
        ("allowed_tools = true", "`skills.allowed_tools`: invalid type: boolean `true`, expected a string"),
        ("allowed_tools = \"yes\"", "`skills.allowed_tools`: `yes` is neither `honour` nor `ignore`"),
        ("max_active = 0", "`skills`: `max_active` must be at least 1"),
        ("max_active = 1000", "1000 is more than 256"),
        ("interpreters = 1", "`skills.interpreters`: invalid type: integer `1`, expected a table"),
        ("interpreters = {py = 1}", "`skills.interpreters.py`: a program is needed"),
    ] {
        check_refused(&format!("[skills]\n{text}"), expected);
    }
}

#[cfg(feature = "anthropic")]
#[test]
fn a_key_is_handed_out_and_never_shown() {
    use secrecy::ExposeSecret as _;

    let environment = ProcessEnv::from_pairs([("ANTHROPIC_API_KEY", "sk-canary")]);
    assert_eq!(environment.api_key().unwrap().expose_secret(), "sk-canary");
    assert!(!format!("{environment:?}").contains("canary"));
    assert!(ProcessEnv::from_pairs([("ANTHROPIC_API_KEY", "")]).api_key().is_none());
}

#[test]
fn a_limit_that_was_asked_for_is_demanded_and_no_layer_lowers_a_floor() {
    let config = layered(Settings::default(), &[], "memory = \"64m\"\nrequire = [\"network\"]").unwrap();
    assert_eq!(config.limits().memory(), 64 << 20);
    assert_eq!(config.floor().memory, Boundary::Enforced);
    assert_eq!(config.floor().network, Boundary::Enforced);
    assert_eq!(config.floor().processor, Boundary::Open);
    let floor = Isolation { disk: Boundary::Enforced, ..Isolation::NONE };
    let session =
        config.with(Settings { floor: Some(floor), cpus: Some(0.5), ..Settings::default() }).unwrap();
    let names: Vec<_> = session.floor().open().collect();
    assert_eq!(names, ["filesystem", "processes", "identity", "syscalls", "files", "process_count"]);
    assert_eq!(session.limits().millicpus(), 500);
    assert_eq!(*Config::default().floor(), Isolation::NONE);
}

#[test]
fn artifacts_are_a_table_of_the_file_with_the_defaults_of_the_decision_and_a_switch() {
    use conjure_artifact::{ArtifactOptions, UrlCache, UrlFetch};

    assert_eq!(Config::default().artifacts(), Some(ArtifactOptions::default()));
    let text = "[artifacts]\nallowed_dirs = [\"uploads\", \"/workspace\"]\nmax_file_size = \"1g\"\nurl_timeout = 5\n\
                url_max_size = 1024\nblocked_hosts = [\"a.example\"]\nallowed_schemes = [\"https\", \"http\"]\n\
                cache_ttl = 60\nsession_ttl = 120\n";
    let code = ArtifactSettings { url_max_size: Some(9), ..ArtifactSettings::default() };
    let config = layered(Settings { artifacts: Some(code), ..Settings::default() }, &[], text).unwrap();
    let options = config.artifacts().unwrap();
    let dirs = options.allowed_dirs.unwrap();
    assert!(dirs[0].is_absolute() && dirs[0].ends_with("uploads"), "{dirs:?}");
    assert_eq!((options.max_file_size, options.url_max_size), (1 << 30, 9));
    assert_eq!(options.cache, UrlCache::For(Duration::from_secs(60)));
    assert_eq!(options.session_ttl, Some(Duration::from_secs(120)));
    let never = "[artifacts]\nsession_ttl = \"never\"\n";
    assert_eq!(layered(Settings::default(), &[], never).unwrap().artifacts().unwrap().session_ttl, None);
    // What is laid over it says when they expire, and the other way round.
    let (hour, unlimited) = (SessionTtl::For(Duration::from_secs(3600)), SessionTtl::Unlimited);
    for (over, text, expected) in [(hour, never, Some(Duration::from_secs(3600))), (unlimited, text, None)] {
        let code = ArtifactSettings { session_ttl: Some(over), ..ArtifactSettings::default() };
        let config = layered(Settings { artifacts: Some(code), ..Settings::default() }, &[], text).unwrap();
        assert_eq!(config.artifacts().unwrap().session_ttl, expected);
    }
    for (word, expected) in [("on", Some(UrlFetch::On)), ("files", Some(UrlFetch::Off)), ("off", None)] {
        let config = layered(Settings::default(), &[("CONJURE_ARTIFACTS", word)], text).unwrap();
        assert_eq!(config.artifacts().map(|options| options.url_fetch), expected, "{word}");
    }
    assert_eq!(
        layered(Settings::default(), &[], "[artifacts]\nenabled = false\n").unwrap().artifacts(),
        None
    );
    let off = layered(Settings::default(), &[], "[artifacts]\ncache_fetched_urls = false\n").unwrap();
    assert_eq!(off.artifacts().unwrap().cache, UrlCache::Off);
    for (text, expected) in [
        ("enable = false", "an unknown key `artifacts.enable`; did you mean `enabled`?"),
        ("enabled = 1", "`artifacts.enabled`: invalid type: integer `1`, expected a boolean"),
        (
            "max_file_size = -1",
            "`artifacts.max_file_size`: a size such as \"512m\" or a number of bytes is needed",
        ),
        ("url_timeout = 0", "`artifacts.url_timeout`: 0 is not"),
        ("session_ttl = 0", "`artifacts.session_ttl`: 0 is not a number of seconds"),
        ("session_ttl = \"ever\"", "`artifacts.session_ttl`: a number of seconds or \"never\" is needed"),
        ("session_ttl = true", "`artifacts.session_ttl`: a number of seconds or \"never\" is needed"),
        (
            "url_max_size = true",
            "`artifacts.url_max_size`: a size such as \"512m\" or a number of bytes is needed",
        ),
        ("url_max_sise = 1", "an unknown key `artifacts.url_max_sise`; did you mean `url_max_size`?"),
        ("blocked_hosts = \"a\"", "`artifacts.blocked_hosts`: it is a text, expected a list"),
        (
            "allowed_dirs = [1]",
            "`artifacts.allowed_dirs`: invalid type: integer `1`, expected the name of a file",
        ),
    ] {
        check_refused(&format!("[artifacts]\n{text}"), expected);
    }
    let ftp = "[artifacts]\nallowed_schemes = [\"ftp\"]\n";
    let refused = layered(Settings::default(), &[], ftp).unwrap_err().to_string();
    assert!(refused.contains("`ftp` cannot be fetched"), "{refused}");
}

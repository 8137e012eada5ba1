//! Checks the layers of the workspace: which crate may depend on which, and which crate may use which external crate.
//!
//! Cargo keeps the dependencies acyclic. These tests keep them pointing to lower layers. A new crate or dependency fails
//! here until somebody decides where it belongs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The workspace crates that each workspace crate may depend on.
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 24] = [
    ("conjure-base", &[]),
    ("conjure-api", &["conjure-base"]),
    ("conjure-fs", &["conjure-base"]),
    ("conjure-guest", &[]),
    ("conjure-skill", &["conjure-base", "conjure-fs"]),
    ("conjure-store", &["conjure-base", "conjure-fs"]),
    ("conjure-conversation", &["conjure-base", "conjure-fs"]),
    ("conjure-egress", &["conjure-base"]),
    ("conjure-journal", &["conjure-base", "conjure-fs", "conjure-store"]),
    ("conjure-model-http", &["conjure-base", "conjure-conversation"]),
    (
        "conjure-mcp",
        &[
            "conjure-base",
            "conjure-conversation",
            "conjure-egress",
            "conjure-fs",
            "conjure-sandbox",
            "conjure-skill",
            "conjure-toolbox",
            "conjure-vault",
        ],
    ),
    ("conjure-vault", &["conjure-base", "conjure-fs", "conjure-journal"]),
    ("conjure-gemini", &["conjure-base", "conjure-conversation", "conjure-model-http"]),
    ("conjure-openai", &["conjure-base", "conjure-conversation", "conjure-model-http"]),
    ("conjure-prompt", &["conjure-base", "conjure-skill", "conjure-conversation"]),
    ("conjure-sandbox", &["conjure-base", "conjure-egress", "conjure-fs", "conjure-guest", "conjure-store"]),
    // The conversation records artifacts, and the artifact crate resolves them: they share one type.
    (
        "conjure-artifact",
        &[
            "conjure-base",
            "conjure-conversation",
            "conjure-egress",
            "conjure-fs",
            "conjure-skill",
            "conjure-store",
        ],
    ),
    (
        "conjure-anthropic",
        &[
            "conjure-artifact",
            "conjure-base",
            "conjure-conversation",
            "conjure-fs",
            "conjure-model-http",
            "conjure-skill",
        ],
    ),
    (
        "conjure-toolbox",
        &[
            "conjure-artifact",
            "conjure-base",
            "conjure-conversation",
            "conjure-fs",
            "conjure-prompt",
            "conjure-sandbox",
            "conjure-skill",
        ],
    ),
    (
        "conjure-actors",
        &[
            "conjure-artifact",
            "conjure-base",
            "conjure-conversation",
            "conjure-journal",
            "conjure-prompt",
            "conjure-sandbox",
            "conjure-skill",
            "conjure-toolbox",
        ],
    ),
    (
        "conjure-runtime",
        &[
            "conjure-actors",
            "conjure-anthropic",
            "conjure-artifact",
            "conjure-base",
            "conjure-conversation",
            "conjure-egress",
            "conjure-fs",
            "conjure-gemini",
            "conjure-journal",
            "conjure-mcp",
            "conjure-model-http",
            "conjure-openai",
            "conjure-prompt",
            "conjure-sandbox",
            "conjure-skill",
            "conjure-store",
            "conjure-toolbox",
            "conjure-vault",
        ],
    ),
    (
        "conjure-acp",
        &[
            "conjure-actors",
            "conjure-base",
            "conjure-conversation",
            "conjure-mcp",
            "conjure-runtime",
            "conjure-toolbox",
        ],
    ),
    (
        "conjure-server",
        &[
            "conjure-actors",
            "conjure-api",
            "conjure-artifact",
            "conjure-base",
            "conjure-conversation",
            "conjure-egress",
            "conjure-journal",
            "conjure-mcp",
            "conjure-runtime",
            "conjure-sandbox",
            "conjure-skill",
            "conjure-store",
            "conjure-toolbox",
            "conjure-vault",
        ],
    ),
    (
        "conjure",
        &[
            "conjure-acp",
            "conjure-actors",
            "conjure-artifact",
            "conjure-base",
            "conjure-conversation",
            "conjure-egress",
            "conjure-fs",
            "conjure-journal",
            "conjure-mcp",
            "conjure-model-http",
            "conjure-prompt",
            "conjure-runtime",
            "conjure-sandbox",
            "conjure-server",
            "conjure-skill",
            "conjure-store",
            "conjure-toolbox",
        ],
    ),
];

/// External crates, and the workspace crates that may use them.
const EXTERNAL_CRATES: [(&str, &[&str]); 43] = [
    ("agent-client-protocol", &["conjure-acp"]),
    ("axum", &["conjure-server"]),
    ("bollard", &["conjure-sandbox"]),
    ("caseless", &["conjure-skill"]),
    ("clap", &["conjure"]),
    ("dashmap", &["conjure-actors"]),
    ("flate2", &["conjure-sandbox", "conjure-skill"]),
    ("globset", &["conjure-toolbox"]),
    ("regex", &["conjure-toolbox"]),
    ("subtle", &["conjure-server"]),
    ("toml", &["conjure", "conjure-runtime"]),
    ("tracing-subscriber", &["conjure"]),
    ("getrandom", &["conjure-base"]),
    ("humantime", &["conjure-api", "conjure-base"]),
    ("percent-encoding", &["conjure-api", "conjure-artifact", "conjure-base", "conjure-server"]),
    ("sha2", &["conjure-base"]),
    ("unicode-normalization", &["conjure-skill"]),
    ("regex-lite", &["conjure-conversation", "conjure-skill"]),
    ("base64", &["conjure-mcp", "conjure-toolbox", "conjure-vault"]),
    ("rmcp", &["conjure-mcp"]),
    ("libc", &["conjure-guest"]),
    (
        "bytes",
        &[
            "conjure-anthropic",
            "conjure-artifact",
            "conjure-gemini",
            "conjure-mcp",
            "conjure-model-http",
            "conjure-openai",
            "conjure-sandbox",
        ],
    ),
    ("http", &["conjure-mcp"]),
    ("httparse", &["conjure-egress"]),
    ("httpdate", &["conjure-model-http"]),
    ("idna", &["conjure-egress"]),
    ("http-body", &["conjure-anthropic", "conjure-mcp"]),
    // The fakes of model services serve HTTP; an engine is asked by it.
    ("http-body-util", &["conjure-model-http"]),
    ("hyper", &["conjure-model-http", "conjure-sandbox", "conjure-server"]),
    ("hyper-util", &["conjure-model-http", "conjure-sandbox", "conjure-server"]),
    ("metrics", &["conjure-actors", "conjure-server"]),
    ("metrics-exporter-prometheus", &["conjure-server"]),
    ("ractor", &["conjure-actors"]),
    ("reqwest", &["conjure-anthropic", "conjure-artifact", "conjure-mcp", "conjure-model-http"]),
    ("rustls", &["conjure-artifact", "conjure-mcp", "conjure-model-http", "conjure-server"]),
    ("rustls-platform-verifier", &["conjure-artifact", "conjure-mcp", "conjure-model-http"]),
    ("ring", &["conjure-vault"]),
    // TLS of connections that are accepted.
    ("tokio-rustls", &["conjure-server"]),
    ("rusqlite", &["conjure-journal"]),
    ("rustyline", &["conjure"]),
    (
        "rustix",
        &[
            "conjure-actors",
            "conjure-artifact",
            "conjure-conversation",
            "conjure-fs",
            "conjure-guest",
            "conjure-sandbox",
            "conjure-skill",
            "conjure-runtime",
            "conjure-store",
            "conjure-vault",
            "conjure",
        ],
    ),
    ("serde_yaml", &["conjure-conversation", "conjure-skill"]),
    ("url", &["conjure-mcp", "conjure-vault"]),
];

/// External crates that any workspace crate may use.
const SHARED_CRATES: [&str; 9] = [
    "futures-util",
    "secrecy",
    "serde",
    "serde_json",
    "tempfile",
    "thiserror",
    "tokio",
    "tokio-util",
    "tracing",
];

/// External crates that no workspace crate may use: superseded, or against the rules of the workspace.
const FORBIDDEN_CRATES: [&str; 5] = ["anyhow", "async-trait", "lazy_static", "once_cell", "openssl"];

/// Crates without tasks, sockets or asynchronous files.
const PURE_CRATES: [&str; 6] = [
    "conjure-api",
    "conjure-base",
    "conjure-skill",
    "conjure-conversation",
    "conjure-prompt",
    "conjure-store",
];

struct Member {
    name: String,
    dir: PathBuf,
    /// Names of `[dependencies]`, `[build-dependencies]` and target-specific ones, not of tests.
    dependencies: BTreeSet<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn members() -> Vec<Member> {
    let mut dirs = vec![root().to_owned(), root().join("actors")];
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        dirs.push(entry.unwrap().path());
    }
    dirs.into_iter()
        .map(|dir| {
            let manifest: toml::Table = fs::read_to_string(dir.join("Cargo.toml")).unwrap().parse().unwrap();
            let mut dependencies = BTreeSet::new();
            collect_dependencies(&manifest, &mut dependencies);
            let name = manifest["package"]["name"].as_str().unwrap().to_owned();
            Member { name, dir, dependencies }
        })
        .collect()
}

fn collect_dependencies(table: &toml::Table, into: &mut BTreeSet<String>) {
    for section in ["dependencies", "build-dependencies"] {
        if let Some(dependencies) = table.get(section).and_then(toml::Value::as_table) {
            into.extend(dependencies.keys().cloned());
        }
    }
    if let Some(targets) = table.get("target").and_then(toml::Value::as_table) {
        for target in targets.values().filter_map(toml::Value::as_table) {
            collect_dependencies(target, into);
        }
    }
}

/// The `.rs` files in the `src` directory of a crate.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![dir.join("src")];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn members_depend_only_on_lower_layers() {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED_DEPENDENCIES.into_iter().collect();
    for member in members() {
        let may = allowed.get(member.name.as_str()).unwrap_or_else(|| {
            panic!("the crate `{}` is not in ALLOWED_DEPENDENCIES: decide its layer", member.name)
        });
        for dependency in member.dependencies.iter().filter(|name| name.starts_with("conjure")) {
            assert!(
                may.contains(&dependency.as_str()),
                "`{}` must not depend on `{dependency}`",
                member.name
            );
        }
    }
}

#[test]
fn every_listed_member_exists() {
    let names: BTreeSet<String> = members().into_iter().map(|member| member.name).collect();
    for (name, _) in ALLOWED_DEPENDENCIES {
        assert!(names.contains(name), "`{name}` is in ALLOWED_DEPENDENCIES and not in the workspace");
    }
}

#[test]
fn external_crates_are_used_only_where_allowed() {
    let owners: BTreeMap<&str, &[&str]> = EXTERNAL_CRATES.into_iter().collect();
    for member in members() {
        for dependency in member.dependencies.iter().filter(|name| !name.starts_with("conjure")) {
            assert!(
                !FORBIDDEN_CRATES.contains(&dependency.as_str()),
                "`{dependency}` is forbidden in this workspace"
            );
            if SHARED_CRATES.contains(&dependency.as_str()) {
                continue;
            }
            let may = owners.get(dependency.as_str()).unwrap_or_else(|| {
                panic!(
                    "`{dependency}` (used by `{}`) is in no table: decide which crates may use it",
                    member.name
                )
            });
            assert!(may.contains(&member.name.as_str()), "`{}` must not use `{dependency}`", member.name);
        }
    }
}

/// Features of `ractor` hold for the whole build: `cluster` and `async-trait` change its traits, and the spans of
/// `message_span_propogation` double what a message costs.
#[test]
fn ractor_is_built_without_the_features_that_change_it() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let ractor = &manifest["workspace"]["dependencies"]["ractor"];
    assert_eq!(ractor["default-features"].as_bool(), Some(false));
    let features: Vec<&str> =
        ractor["features"].as_array().unwrap().iter().filter_map(toml::Value::as_str).collect();
    assert_eq!(features, ["tokio_runtime"]);
    let user: toml::Table = fs::read_to_string(root().join("actors/Cargo.toml")).unwrap().parse().unwrap();
    let inherited: toml::Table = "workspace = true".parse().unwrap();
    assert_eq!(user["dependencies"]["ractor"].as_table(), Some(&inherited), "no features beside them");
    // Other crates may use `async-trait`; what it changes in `ractor` is a feature.
    let lock: toml::Table = fs::read_to_string(root().join("Cargo.lock")).unwrap().parse().unwrap();
    let packages = lock["package"].as_array().unwrap();
    let locked = packages.iter().find(|package| package["name"].as_str() == Some("ractor")).unwrap();
    let uses: Vec<&str> =
        locked["dependencies"].as_array().unwrap().iter().filter_map(toml::Value::as_str).collect();
    for crate_name in ["async-trait", "pot", "ractor_cluster", "ractor_macros"] {
        assert!(!uses.contains(&crate_name), "`{crate_name}` comes with other features");
    }
}

#[test]
fn the_pure_crates_start_no_tasks() {
    for member in members().into_iter().filter(|member| PURE_CRATES.contains(&member.name.as_str())) {
        for path in sources(&member.dir) {
            let text = fs::read_to_string(&path).unwrap();
            for name in ["tokio::spawn", "tokio::task", "JoinSet", "TaskTracker", "tokio::net", "tokio::fs"] {
                assert!(!text.contains(name), "{} names `{name}`", path.display());
            }
        }
    }
}

#[test]
fn unsafe_code_is_only_in_the_guests_sys_module() {
    for member in members() {
        for path in sources(&member.dir) {
            let text = fs::read_to_string(&path).unwrap();
            let is_sys =
                member.name == "conjure-guest" && path.components().any(|part| part.as_os_str() == "sys");
            let names_unsafe =
                text.lines().map(|line| line.split("//").next().unwrap_or_default()).any(|code| {
                    code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl")
                });
            assert!(is_sys || !names_unsafe, "{} has unsafe code", path.display());
        }
    }
}

#[test]
fn every_file_documents_its_purpose() {
    for member in members() {
        for path in sources(&member.dir) {
            let text = fs::read_to_string(&path).unwrap();
            let is_tests = path.file_stem().is_some_and(|stem| stem == "tests")
                || path.components().any(|part| part.as_os_str() == "tests");
            assert!(is_tests || text.starts_with("//!"), "{} does not begin with `//!`", path.display());
        }
    }
}

/// The seccomp profile in the directory for embedders is the one that our containers run under.
#[cfg(feature = "docker")]
#[test]
fn the_container_seccomp_filter_matches_its_file() {
    let text = fs::read_to_string(root().join("docker/seccomp.json")).unwrap();
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found, conjure::sandbox::seccomp_profile());
}

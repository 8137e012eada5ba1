//! The architecture, checked: which room may depend on which, and which room may name which outside crate.
//!
//! Cargo keeps the arrows acyclic; this keeps them pointing down, floor by floor, and keeps the outside names in
//! their rooms. A new room or dependency fails here until somebody has decided where it belongs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms that a room may depend on. Rooms that do not exist yet are not listed.
const ARROWS: [(&str, &[&str]); 14] = [
    ("conjure-base", &[]),
    ("conjure-guest", &[]),
    ("conjure-skill", &["conjure-base"]),
    ("conjure-store", &["conjure-base"]),
    ("conjure-conversation", &["conjure-base"]),
    ("conjure-egress", &["conjure-base"]),
    ("conjure-journal", &["conjure-base", "conjure-store"]),
    ("conjure-prompt", &["conjure-base", "conjure-skill", "conjure-conversation"]),
    ("conjure-sandbox", &["conjure-base", "conjure-egress", "conjure-guest", "conjure-store"]),
    // What a session was given is recorded by its conversation, and found by it: one type for both.
    (
        "conjure-artifact",
        &["conjure-base", "conjure-conversation", "conjure-egress", "conjure-skill", "conjure-store"],
    ),
    ("conjure-anthropic", &["conjure-artifact", "conjure-base", "conjure-conversation", "conjure-skill"]),
    (
        "conjure-toolbox",
        &[
            "conjure-artifact",
            "conjure-base",
            "conjure-conversation",
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
        "conjure",
        &[
            "conjure-actors",
            "conjure-anthropic",
            "conjure-artifact",
            "conjure-base",
            "conjure-conversation",
            // The way out of fetches, which is the runtime's.
            "conjure-egress",
            "conjure-journal",
            "conjure-prompt",
            "conjure-sandbox",
            "conjure-skill",
            "conjure-store",
            "conjure-toolbox",
        ],
    ),
];

/// Outside crates that only these rooms may name, in dependencies and in code.
const ROOMS_OF_OUTSIDERS: [(&str, &[&str]); 29] = [
    ("bollard", &["conjure-sandbox"]),
    ("caseless", &["conjure-skill"]),
    ("clap", &["conjure"]),
    ("dashmap", &["conjure-actors"]),
    ("flate2", &["conjure-skill"]),
    ("toml", &["conjure"]),
    ("tracing-subscriber", &["conjure"]),
    ("getrandom", &["conjure-base"]),
    ("humantime", &["conjure-base"]),
    ("sha2", &["conjure-base"]),
    ("unicode-normalization", &["conjure-skill"]),
    ("regex-lite", &["conjure-conversation", "conjure-skill"]),
    ("base64", &["conjure-toolbox"]),
    ("libc", &["conjure-guest"]),
    ("bytes", &["conjure-anthropic", "conjure-artifact", "conjure-sandbox"]),
    ("httparse", &["conjure-egress"]),
    ("idna", &["conjure-egress"]),
    ("http-body", &["conjure-anthropic"]),
    // The fake of the Messages service serves HTTP; an engine is asked by it.
    ("http-body-util", &["conjure-anthropic"]),
    ("hyper", &["conjure-anthropic", "conjure-sandbox"]),
    ("hyper-util", &["conjure-anthropic", "conjure-sandbox"]),
    ("metrics", &["conjure-actors"]),
    ("ractor", &["conjure-actors"]),
    ("reqwest", &["conjure-anthropic", "conjure-artifact"]),
    ("rustls", &["conjure-anthropic", "conjure-artifact"]),
    ("rustls-platform-verifier", &["conjure-anthropic", "conjure-artifact"]),
    ("rusqlite", &["conjure-journal"]),
    (
        "rustix",
        &[
            "conjure-actors",
            "conjure-artifact",
            "conjure-conversation",
            "conjure-guest",
            "conjure-sandbox",
            "conjure-skill",
            "conjure-store",
            "conjure",
        ],
    ),
    ("serde_yaml", &["conjure-conversation", "conjure-skill"]),
];

/// Outside crates that any room may name.
const EVERYWHERE: [&str; 9] = [
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

/// What no room may ever name: superseded, or against the rules of the house.
const NOWHERE: [&str; 5] = ["anyhow", "async-trait", "lazy_static", "once_cell", "openssl"];

/// Rooms whose code must not name Tokio's tasks: the pure floors.
const NO_TASKS: [&str; 5] =
    ["conjure-base", "conjure-skill", "conjure-conversation", "conjure-prompt", "conjure-store"];

struct Room {
    name: String,
    folder: PathBuf,
    /// Names of `[dependencies]`, `[build-dependencies]` and target-specific ones, not of tests.
    dependencies: BTreeSet<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rooms() -> Vec<Room> {
    let mut folders = vec![root().to_owned(), root().join("actors")];
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        folders.push(entry.unwrap().path());
    }
    folders
        .into_iter()
        .map(|folder| {
            let manifest: toml::Table =
                fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
            let mut dependencies = BTreeSet::new();
            collect_dependencies(&manifest, &mut dependencies);
            let name = manifest["package"]["name"].as_str().unwrap().to_owned();
            Room { name, folder, dependencies }
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

/// The `.rs` files of a room that are not tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![folder.join("src")];
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
fn arrows_point_down_only() {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    for room in rooms() {
        let may = allowed
            .get(room.name.as_str())
            .unwrap_or_else(|| panic!("room `{}` is not in the table ARROWS: decide its floor", room.name));
        for dependency in room.dependencies.iter().filter(|name| name.starts_with("conjure")) {
            assert!(may.contains(&dependency.as_str()), "`{}` must not depend on `{dependency}`", room.name);
        }
    }
}

#[test]
fn every_listed_room_exists() {
    let names: BTreeSet<String> = rooms().into_iter().map(|room| room.name).collect();
    for (name, _) in ARROWS {
        assert!(names.contains(name), "`{name}` is in the table ARROWS and not in the workspace");
    }
}

#[test]
fn outside_names_have_their_rooms() {
    let owners: BTreeMap<&str, &[&str]> = ROOMS_OF_OUTSIDERS.into_iter().collect();
    for room in rooms() {
        for dependency in room.dependencies.iter().filter(|name| !name.starts_with("conjure")) {
            assert!(!NOWHERE.contains(&dependency.as_str()), "`{dependency}` has no room in this house");
            if EVERYWHERE.contains(&dependency.as_str()) {
                continue;
            }
            let may = owners.get(dependency.as_str()).unwrap_or_else(|| {
                panic!("`{dependency}` (used by `{}`) is in no table: decide its room", room.name)
            });
            assert!(may.contains(&room.name.as_str()), "`{}` must not name `{dependency}`", room.name);
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
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    for crate_name in ["async-trait", "pot", "ractor_cluster", "ractor_macros"] {
        assert!(
            !lock.contains(&format!("name = \"{crate_name}\"")),
            "`{crate_name}` comes with other features"
        );
    }
}

#[test]
fn the_pure_floors_start_no_tasks() {
    for room in rooms().into_iter().filter(|room| NO_TASKS.contains(&room.name.as_str())) {
        for path in sources(&room.folder) {
            let text = fs::read_to_string(&path).unwrap();
            for name in ["tokio::spawn", "tokio::task", "JoinSet", "TaskTracker", "tokio::net", "tokio::fs"] {
                assert!(!text.contains(name), "{} names `{name}`", path.display());
            }
        }
    }
}

#[test]
fn unsafe_code_is_in_the_guests_sys_only() {
    for room in rooms() {
        for path in sources(&room.folder) {
            let text = fs::read_to_string(&path).unwrap();
            let is_sys =
                room.name == "conjure-guest" && path.components().any(|part| part.as_os_str() == "sys");
            let names_unsafe =
                text.lines().map(|line| line.split("//").next().unwrap_or_default()).any(|code| {
                    code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl")
                });
            assert!(is_sys || !names_unsafe, "{} has unsafe code", path.display());
        }
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for room in rooms() {
        for path in sources(&room.folder) {
            let text = fs::read_to_string(&path).unwrap();
            let is_tests = path.file_stem().is_some_and(|stem| stem == "tests")
                || path.components().any(|part| part.as_os_str() == "tests");
            assert!(is_tests || text.starts_with("//!"), "{} does not begin with `//!`", path.display());
        }
    }
}

/// What hosts find to run containers of their own under is what ours run under.
#[cfg(feature = "docker")]
#[test]
fn the_filter_for_containers_is_the_one_in_its_folder() {
    let text = fs::read_to_string(root().join("docker/seccomp.json")).unwrap();
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found, conjure::seccomp_profile());
}

//! Whole-system tests, in one binary.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

#[path = "../../crates/sandbox/tests/support/again.rs"]
#[expect(dead_code, reason = "others' tests need more of it")]
mod again;
#[path = "../../crates/sandbox/tests/support/processes.rs"]
#[expect(dead_code, reason = "others' tests need more of it")]
mod processes;
mod support;

mod approvals_command;
mod bad_data_command;
mod bad_input;
mod check_command;
mod conformance;
#[cfg(feature = "docker")]
mod containers;
mod doctor;
mod hosted_skills_command;
mod house;
#[cfg(feature = "docker")]
mod image_command;
mod library;
mod live_model;
mod run_command;
mod run_hosted;
mod run_out_limit;
mod run_planted_links;
mod runtime_artifacts;
mod runtime_artifacts_expired;
mod runtime_artifacts_killed;
mod runtime_bed;
mod runtime_breakers;
mod runtime_canaries;
mod runtime_cancelled;
mod runtime_catalogs;
mod runtime_chores;
mod runtime_compaction;
mod runtime_disks;
mod runtime_displaced;
mod runtime_fetch;
mod runtime_halts;
mod runtime_hosted;
mod runtime_hosted_files;
mod runtime_hosted_killed;
mod runtime_hosts;
mod runtime_inputs;
mod runtime_journal;
mod runtime_keys;
mod runtime_killed;
mod runtime_lists;
mod runtime_models;
mod runtime_opening;
mod runtime_outputs;
mod runtime_pools;
mod runtime_programs;
mod runtime_ready;
mod runtime_registry;
mod runtime_remains;
mod runtime_remains_killed;
mod runtime_remains_refused;
mod runtime_remains_skills;
mod runtime_remains_used;
mod runtime_restarts;
mod runtime_sandboxes;
mod runtime_scale;
mod runtime_sessions;
mod runtime_shares;
mod runtime_shutdown;
mod runtime_spares;
mod runtime_turns;
mod secrets_command;
mod sessions_command;
mod signals;
mod skill_tools;
mod skills_command;
mod strangers_text;

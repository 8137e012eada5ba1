//! The metrics, by name. Durations are seconds, as histograms; `_total` are counters; the rest are gauges.
//!
//! `tenant` is the tenant's id, or `other` beyond [`MetricsOptions::tenants`](super::MetricsOptions::tenants). Where a label has a
//! closed set of values, they are listed.
//!
//! All runtimes of a process count together: a series is the sum of what they have of it, gauges too, so also where two have gates or
//! pools of one name. Apart they are told by themselves (`Runtime::pools`, a host's own gates by names of its own). A recorder is to be
//! installed before they start.

/// Turns that ended. `tenant`; `stop`: `answered`, `cut`, `refused`, `limit`, `model_failed`, `interrupted`, `deadline`.
pub const TURNS: &str = "conjure_turns_total";

/// How long turns took, from their beginning to their end, waiting for people included. `tenant`.
pub const TURN_DURATION: &str = "conjure_turn_duration_seconds";

/// Model calls that ended. `tenant`; `outcome`: `ok`, `abandoned` (its driver ended in between), or the class of the failure, as
/// `rate_limit_error`, `connection`, `overloaded`.
pub const MODEL_CALLS: &str = "conjure_model_calls_total";

/// How long model calls took that were answered. `tenant`.
pub const MODEL_CALL_DURATION: &str = "conjure_model_call_duration_seconds";

/// Compactions of long histories that ended. `tenant`; `outcome`: `ok`, `unchanged` (there was no summary, or none that is smaller),
/// `abandoned`.
pub const COMPACTIONS: &str = "conjure_compactions_total";

/// Tokens of answers and of summaries. `tenant`; `kind`: `input`, `output`, `cache_creation`, `cache_read`.
pub const TOKENS: &str = "conjure_tokens_total";

/// What answers and summaries cost, in millionths of a dollar, where the price is known. `tenant`.
pub const COST: &str = "conjure_cost_micro_dollars_total";

/// Tool calls that ran, or were denied. `tenant`; `tool`: its name, or `other` beyond a few; `outcome`: as in the audit log
/// (`ok`, `error`, `rejected`, `denied`, `cancelled`, `timed_out`, `lost`, `crashed`, `unknown`).
pub const TOOL_CALLS: &str = "conjure_tool_calls_total";

/// How long tool calls took. `tenant`, `tool`.
pub const TOOL_CALL_DURATION: &str = "conjure_tool_call_duration_seconds";

/// Sessions that are live: idle or at work, not put away. `tenant`.
pub const SESSIONS_LIVE: &str = "conjure_sessions_live";

/// Sessions that came to be live: opened, found, revived, or started again after a failure. `tenant`.
pub const SESSION_STARTS: &str = "conjure_session_starts_total";

/// Sandboxes that serve calls. `tenant`.
pub const SANDBOXES_LIVE: &str = "conjure_sandboxes_live";

/// Sandboxes in which everything stands still until the next call, as nobody uses them; they are among those that serve calls. `tenant`.
pub const SANDBOXES_PAUSED: &str = "conjure_sandboxes_paused";

/// Sandboxes that were to be made. `tenant`; `outcome`: `ok`, `overloaded`, `failed`.
pub const SANDBOX_STARTS: &str = "conjure_sandbox_starts_total";

/// How long sandboxes took that came to serve calls, waiting at gates included. `tenant`.
pub const SANDBOX_START_DURATION: &str = "conjure_sandbox_start_duration_seconds";

/// Sandboxes that ended without having been told to. `tenant`.
pub const SANDBOXES_LOST: &str = "conjure_sandboxes_lost_total";

/// Events that were recorded and are durable. No labels.
pub const JOURNAL_EVENTS: &str = "conjure_journal_events_total";

/// How long it took until events were durable, from their being sent, waiting for others included. No labels.
pub const JOURNAL_APPEND_DURATION: &str = "conjure_journal_append_duration_seconds";

/// Chores of the janitor that were done or not. `chore`; `outcome`: `ok`, `failed`.
pub const CHORES: &str = "conjure_chores_total";

/// Files at models' services that were to be deleted there with their sessions. `outcome`: `deleted`, `absent` (they were gone),
/// `given_up` (they stay: the log says which).
pub const SERVICE_FILES: &str = "conjure_service_files_total";

/// What a gate has admitted at the moment. `gate`.
pub const GATE_ADMITTED: &str = "conjure_gate_admitted";

/// Who waits at a gate at the moment. `gate`.
pub const GATE_WAITING: &str = "conjure_gate_waiting";

/// What a gate has refused. `gate`.
pub const GATE_REFUSED: &str = "conjure_gate_refused_total";

/// Sessions that a pool of spares could serve or not. `pool`: its name; `outcome`: `hit` (it got a spare), `miss` (one had to be made).
pub const POOL_CLAIMS: &str = "conjure_pool_claims_total";

/// Spares. `pool`; `outcome`: `ready` (made), `failed` (not made), `died` (ended while it waited), `retired` (too old).
pub const POOL_SPARES: &str = "conjure_pool_spares_total";

/// Spares that are ready at the moment. `pool`.
pub const POOL_READY: &str = "conjure_pool_ready";

/// Spares that are being started at the moment, or wait for that. `pool`.
pub const POOL_STARTING: &str = "conjure_pool_starting";

/// Says of each metric what it is and in which unit, to the recorder that is installed: once, after it was.
pub fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    describe_counter!(TURNS, Unit::Count, "Turns that ended");
    describe_histogram!(TURN_DURATION, Unit::Seconds, "How long turns took");
    describe_counter!(COMPACTIONS, Unit::Count, "Compactions of long histories that ended");
    describe_counter!(MODEL_CALLS, Unit::Count, "Model calls that ended");
    describe_histogram!(MODEL_CALL_DURATION, Unit::Seconds, "How long model calls took that were answered");
    describe_counter!(TOKENS, Unit::Count, "Tokens of answers");
    describe_counter!(COST, Unit::Count, "What answers cost, in millionths of a dollar");
    describe_counter!(TOOL_CALLS, Unit::Count, "Tool calls that ran or were denied");
    describe_histogram!(TOOL_CALL_DURATION, Unit::Seconds, "How long tool calls took");
    describe_gauge!(SESSIONS_LIVE, Unit::Count, "Sessions that are live");
    describe_counter!(SESSION_STARTS, Unit::Count, "Sessions that came to be live");
    describe_gauge!(SANDBOXES_LIVE, Unit::Count, "Sandboxes that serve calls");
    describe_gauge!(SANDBOXES_PAUSED, Unit::Count, "Sandboxes in which everything stands still");
    describe_counter!(SANDBOX_STARTS, Unit::Count, "Sandboxes that were to be made");
    describe_histogram!(SANDBOX_START_DURATION, Unit::Seconds, "How long sandboxes took to serve calls");
    describe_counter!(SANDBOXES_LOST, Unit::Count, "Sandboxes that ended without having been told to");
    describe_counter!(JOURNAL_EVENTS, Unit::Count, "Events that were recorded and are durable");
    describe_histogram!(JOURNAL_APPEND_DURATION, Unit::Seconds, "How long it took until events were durable");
    describe_counter!(CHORES, Unit::Count, "Chores of the janitor that were done or not");
    describe_counter!(
        SERVICE_FILES,
        Unit::Count,
        "Files at services that were to be deleted with their sessions"
    );
    describe_gauge!(GATE_ADMITTED, Unit::Count, "What a gate has admitted at the moment");
    describe_gauge!(GATE_WAITING, Unit::Count, "Who waits at a gate at the moment");
    describe_counter!(GATE_REFUSED, Unit::Count, "What a gate has refused");
    describe_counter!(POOL_CLAIMS, Unit::Count, "Sessions that got a spare or not");
    describe_counter!(POOL_SPARES, Unit::Count, "Spares that were made, or were not, or are gone unused");
    describe_gauge!(POOL_READY, Unit::Count, "Spares that are ready at the moment");
    describe_gauge!(POOL_STARTING, Unit::Count, "Spares that are being started at the moment");
}

//! The names of the metrics. Durations are histograms in seconds, names with `_total` are counters, the others are gauges.
//!
//! The label `tenant` is the tenant's id, or `other` beyond [`MetricsOptions::tenants`](super::MetricsOptions::tenants). Where a label
//! has a closed set of values, they are listed.
//!
//! All runtimes of a process share one recorder, so each series is the sum over them. This holds for gauges too, also where two
//! runtimes have admission gates or pools of the same name. `Runtime::pools` reports the pools of one runtime. An embedder can name its
//! own gates differently. Install the recorder before the runtimes start.

/// Turns that ended. `tenant`; `stop`: `answered`, `cut`, `refused`, `limit`, `model_failed`, `interrupted`, `deadline`.
pub const TURNS: &str = "conjure_turns_total";

/// Duration of turns, including the time they waited for people. `tenant`.
pub const TURN_DURATION: &str = "conjure_turn_duration_seconds";

/// Model calls that ended. `tenant`; `outcome`: `ok`, `abandoned` (its driver stopped during the call), or the class of the failure,
/// such as `rate_limit_error`, `connection`, `overloaded`.
pub const MODEL_CALLS: &str = "conjure_model_calls_total";

/// Duration of model calls with a complete response. `tenant`.
pub const MODEL_CALL_DURATION: &str = "conjure_model_call_duration_seconds";

/// Compactions of long histories that ended. `tenant`; `outcome`: `ok`, `unchanged` (there was no summary, or it was not smaller),
/// `abandoned`.
pub const COMPACTIONS: &str = "conjure_compactions_total";

/// Tokens of responses and of summaries. `tenant`; `kind`: `input`, `output`, `cache_creation`, `cache_read`.
pub const TOKENS: &str = "conjure_tokens_total";

/// Cost of responses and summaries in millionths of a dollar, where the price is known. `tenant`.
pub const COST: &str = "conjure_cost_micro_dollars_total";

/// Tool calls that ran or were denied. `tenant`; `tool`: its name, or `other` beyond
/// [`MetricsOptions::tools`](super::MetricsOptions::tools) and for tools that have never run; `outcome`: as in the audit
/// log (`ok`, `error`, `rejected`, `denied`, `cancelled`, `timed_out`, `lost`, `crashed`, `unknown`).
pub const TOOL_CALLS: &str = "conjure_tool_calls_total";

/// Duration of tool calls. `tenant`, `tool`.
pub const TOOL_CALL_DURATION: &str = "conjure_tool_call_duration_seconds";

/// Live sessions: those whose actor runs, idle or in a turn. Passivated sessions are not counted. `tenant`.
pub const SESSIONS_LIVE: &str = "conjure_sessions_live";

/// Sessions that became live: opened, revived, or restarted after a failure. `tenant`.
pub const SESSION_STARTS: &str = "conjure_session_starts_total";

/// Sandboxes that serve calls. `tenant`.
pub const SANDBOXES_LIVE: &str = "conjure_sandboxes_live";

/// Sandboxes that are paused because they are not in use. They also count as live. `tenant`.
pub const SANDBOXES_PAUSED: &str = "conjure_sandboxes_paused";

/// Attempts to create a sandbox. `tenant`; `outcome`: `ok`, `overloaded`, `failed`.
pub const SANDBOX_STARTS: &str = "conjure_sandbox_starts_total";

/// Duration of successful sandbox starts, including the wait for admission. `tenant`.
pub const SANDBOX_START_DURATION: &str = "conjure_sandbox_start_duration_seconds";

/// Sandboxes that ended without being stopped. `tenant`.
pub const SANDBOXES_LOST: &str = "conjure_sandboxes_lost_total";

/// Events that are recorded and durable. No labels.
pub const JOURNAL_EVENTS: &str = "conjure_journal_events_total";

/// Time from the submission of events until they are durable, including the wait for other appends. No labels.
pub const JOURNAL_APPEND_DURATION: &str = "conjure_journal_append_duration_seconds";

/// Runs of maintenance tasks. `task`; `outcome`: `ok`, `failed`.
pub const MAINTENANCE_RUNS: &str = "conjure_maintenance_runs_total";

/// Files at model services whose sessions were deleted. `outcome`: `deleted`, `absent` (the service had removed them),
/// `given_up` (the files stay; the log names them).
pub const SERVICE_FILES: &str = "conjure_service_files_total";

/// Requests that an admission gate has let in and that have not ended. `gate`.
pub const ADMISSION_ADMITTED: &str = "conjure_admission_admitted";

/// Requests that wait at an admission gate. `gate`.
pub const ADMISSION_WAITING: &str = "conjure_admission_waiting";

/// Requests that an admission gate refused. `gate`.
pub const ADMISSION_REFUSED: &str = "conjure_admission_refused_total";

/// Sessions that asked a pool for a warm sandbox. `pool`: its name; `outcome`: `hit` (it got one), `miss` (one had to be created).
pub const POOL_CLAIMS: &str = "conjure_pool_claims_total";

/// Warm sandboxes of a pool. `pool`; `outcome`: `ready` (created), `failed` (not created), `died` (ended unused), `retired` (too old).
pub const POOL_ITEMS: &str = "conjure_pool_items_total";

/// Warm sandboxes that are ready. `pool`.
pub const POOL_READY: &str = "conjure_pool_ready";

/// Warm sandboxes that are starting, or waiting to start. `pool`.
pub const POOL_STARTING: &str = "conjure_pool_starting";

/// Describes each metric and its unit to the installed recorder. Call it once, after a recorder was installed.
pub fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    describe_counter!(TURNS, Unit::Count, "Turns that ended");
    describe_histogram!(TURN_DURATION, Unit::Seconds, "Duration of turns");
    describe_counter!(COMPACTIONS, Unit::Count, "Compactions of long histories that ended");
    describe_counter!(MODEL_CALLS, Unit::Count, "Model calls that ended");
    describe_histogram!(
        MODEL_CALL_DURATION,
        Unit::Seconds,
        "Duration of model calls with a complete response"
    );
    describe_counter!(TOKENS, Unit::Count, "Tokens of responses and summaries");
    describe_counter!(COST, Unit::Count, "Cost of responses and summaries in millionths of a dollar");
    describe_counter!(TOOL_CALLS, Unit::Count, "Tool calls that ran or were denied");
    describe_histogram!(TOOL_CALL_DURATION, Unit::Seconds, "Duration of tool calls");
    describe_gauge!(SESSIONS_LIVE, Unit::Count, "Live sessions");
    describe_counter!(SESSION_STARTS, Unit::Count, "Sessions that became live");
    describe_gauge!(SANDBOXES_LIVE, Unit::Count, "Sandboxes that serve calls");
    describe_gauge!(SANDBOXES_PAUSED, Unit::Count, "Paused sandboxes");
    describe_counter!(SANDBOX_STARTS, Unit::Count, "Attempts to create a sandbox");
    describe_histogram!(SANDBOX_START_DURATION, Unit::Seconds, "Duration of successful sandbox starts");
    describe_counter!(SANDBOXES_LOST, Unit::Count, "Sandboxes that ended although nobody had stopped them");
    describe_counter!(JOURNAL_EVENTS, Unit::Count, "Events that are recorded and durable");
    describe_histogram!(JOURNAL_APPEND_DURATION, Unit::Seconds, "Time until submitted events are durable");
    describe_counter!(MAINTENANCE_RUNS, Unit::Count, "Runs of maintenance tasks");
    describe_counter!(SERVICE_FILES, Unit::Count, "Files at model services whose sessions were deleted");
    describe_gauge!(ADMISSION_ADMITTED, Unit::Count, "Requests that an admission gate has let in");
    describe_gauge!(ADMISSION_WAITING, Unit::Count, "Requests that wait at an admission gate");
    describe_counter!(ADMISSION_REFUSED, Unit::Count, "Requests that an admission gate refused");
    describe_counter!(POOL_CLAIMS, Unit::Count, "Sessions that asked a pool for a warm sandbox");
    describe_counter!(
        POOL_ITEMS,
        Unit::Count,
        "Warm sandboxes that were created, failed, died or were retired"
    );
    describe_gauge!(POOL_READY, Unit::Count, "Warm sandboxes that are ready");
    describe_gauge!(POOL_STARTING, Unit::Count, "Warm sandboxes that are starting");
}

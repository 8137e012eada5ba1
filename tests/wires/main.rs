//! The acceptance cases of agent loops, on every wire: the client of the wire, a strict fake of its service, and the public library
//! between them. Each case is one test for each wire, named after it: `tools::siblings_keep_their_results::gemini`.
//!
//! | what | where |
//! |---|---|
//! | a turn that is interrupted anywhere leaves a history that the service accepts | `cancellation` |
//! | each call has exactly one result, even if the service repeats an id | `cancellation`, and [`check`](support::test_wire::TestService::check) everywhere |
//! | limits stop a turn: model calls, tool calls, repeated calls, denied calls, tokens, money, time | `limits` |
//! | no tool of an answer that was cut off or refused runs | `answers` |
//! | a paused answer is resumed unchanged, up to a limit | `pauses` |
//! | answers are sent back byte for byte | `answers` |
//! | a block that the service refuses does not end the session | `long_sessions` |
//! | a history is compacted between answers, and not repeatedly in vain | `long_sessions` |
//! | each request begins with the one before | `answers` |
//! | nothing crosses between two tenants of one service, and the key stays in its header | `tenants` |
//! | a resumed turn repeats no effect | `cancellation` |
//! | a failing tool does not cost its siblings their results | `tools` |
//! | an overload in mid-stream is retried only if nothing was shown | `failures` |
//! | the sessions of a rate-limited key wait, and are all answered | `failures` |
//! | a slow or absent listener does not delay an answer | `tenants` |
//! | a steering message follows the results, a queued message has its own turn | `tools` |
//! | a deadline ends a call that the service does not answer | `limits` |
//! | an answer that is cut off is not an answer | `failures` |
//!
//! What has no meaning on a wire:
//!
//! | case | wires | why |
//! |---|---|---|
//! | an unknown stop reason | Chat | its servers write reasons of their own with complete calls, which therefore run |
//! | pauses | Chat, Responses | their answers do not pause |
//! | the container of a paused or cut off answer | all but Messages | only that service has containers; `crates/anthropic/tests` has the rest of it |
//! | unknown blocks | all but Messages | their fakes refuse unknown members; `crates/openai/src/chat` and `crates/gemini/src` keep them in unit tests |
//! | processes and sandboxes | all | they do not depend on a wire: `tests/it/runtime`, `tests/system` |
//! | marks of the cache | all but Messages | the other services find prefixes by themselves |
//! | memory and time over many turns | all | they do not depend on a wire: `tests/system/soak` |
//!
//! Besides, a session moves from the model of each wire to that of each other one, and back (`model_change`).
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod support;

mod answers;
mod cancellation;
mod failures;
mod limits;
mod long_sessions;
mod model_change;
mod pauses;
mod tenants;
mod tools;
#[path = "../it/support/turns.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod turns;

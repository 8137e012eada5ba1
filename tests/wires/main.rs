//! The acceptance cases of agent loops, on every wire: the client of the wire, a strict fake of its service, and the public library
//! between them. Each case is one test for each wire, named after it: `tools::siblings_keep_their_results::gemini`.
//!
//! | case | what | where |
//! |---|---|---|
//! | A1 | a turn that is interrupted anywhere leaves a history that the service accepts | `cancellation` |
//! | A2 | each call has exactly one result, also if the service repeats an id | `cancellation`, and [`check`](support::test_wire::TestService::check) everywhere |
//! | A3 | limits stop a turn: model calls, tool calls, repeated calls, denied calls, tokens, money, time | `limits` |
//! | A4 | no tool of an answer runs that was cut or refused | `answers` |
//! | A5 | a paused answer is resumed unchanged, as often as it may be | `pauses` |
//! | A6 | answers go back byte for byte | `answers` |
//! | A7 | a block that the service refuses does not end the session | `long_sessions` |
//! | A8 | a history is compacted between answers, and not again and again in vain | `long_sessions` |
//! | A10 | each request begins with the one before | `answers` |
//! | A12 | two tenants at one service: nothing crosses, and the key stays in its header | `tenants` |
//! | A13 | a turn that is resumed repeats no effect | `cancellation` |
//! | A14 | a tool that fails takes no result of its siblings | `tools` |
//! | A15 | an overload in mid-stream is retried only if nothing was shown | `failures` |
//! | A16 | a limited key: its sessions wait, and are all answered | `failures` |
//! | A17 | a slow or absent listener does not hold up an answer | `tenants` |
//! | A18 | what steers comes after the results, what is queued has its own turn | `tools` |
//! | A20 | a deadline ends a call that the service does not answer | `limits` |
//! | A21 | an answer that breaks off is no answer | `failures` |
//!
//! What has no meaning on a wire:
//!
//! | case | wires | why |
//! |---|---|---|
//! | A4, an unknown stop reason | Chat | its servers write reasons of their own behind complete calls, which therefore run |
//! | A5 | Chat, Responses | their answers do not pause |
//! | A5, the container | all but Messages | only that service has containers; `crates/anthropic/tests` has the rest of it |
//! | A6, unknown blocks | all but Messages | their fakes refuse unknown members; `crates/openai/src/chat` and `crates/gemini/src` keep them in unit tests |
//! | A9 | all | processes and sandboxes are no concern of a wire: `tests/it/runtime`, `tests/system` |
//! | A10, marks of the cache | all but Messages | the other services find prefixes by themselves |
//! | A11 | all | memory and time over many turns: `tests/system/soak` |
//! | A21, the container | all but Messages | as A5; `crates/anthropic/tests/fake/container.rs` |
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

//! The clients against the fake, over plain sockets; the official SDK as the oracle of both.
//!
//! The SDK's interpreter is `CONJURE_ORACLE_PYTHON`, else `python3`. Without `openai` in it those tests say so and pass, unless
//! `CONJURE_TEST_REQUIRE=all`. The same holds for `xllamacpp`, `gguf` and `numpy`, which make and serve a tiny model.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod conversations;
mod driven;
mod failures;
mod llama_cpp;
mod oracle;
mod refusals;
mod support;

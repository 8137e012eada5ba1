//! The official SDK as a client of `conjure serve`: the tests are in `sdk.rs`.

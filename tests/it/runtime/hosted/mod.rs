//! Sessions whose skills the model's service runs.

mod files;
mod killed;
mod sessions;

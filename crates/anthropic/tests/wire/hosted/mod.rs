//! The service's containers, skills and files.

mod models;
mod oracle;
mod outputs;
mod sync;
mod transfers;

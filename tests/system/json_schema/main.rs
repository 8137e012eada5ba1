//! Compares the checks of JSON Schema with a complete validator.

mod manifests;
mod output_schemas;

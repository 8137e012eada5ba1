//! Skills: their catalogs, their registry, and their requirements.

mod catalogs;
mod preflight;
mod registry;

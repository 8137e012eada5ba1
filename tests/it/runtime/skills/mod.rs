//! Skills: their catalogs, their registry, and what they ask for before they are loaded.

mod catalogs;
mod preflight;
mod registry;

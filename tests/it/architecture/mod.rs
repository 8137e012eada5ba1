//! Checks of the source itself: layers, cycles, sizes, names, and the public API.

mod circles;
mod dirs;
mod layering;
mod public_api;
mod vocabulary;

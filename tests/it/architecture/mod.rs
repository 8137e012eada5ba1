//! Checks of the source itself: layers, cycles, sizes, names, and the public API.

mod circles;
mod folders;
mod layering;
mod public_api;
mod vocabulary;

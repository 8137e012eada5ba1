//! Calls of models: what is done before them, what they may do, and their containers.

mod container;
mod effects;
mod hosted_crash;
mod pre_call_hook;

//! `conjure run`: its inputs, outputs, leftovers and interrupts.

pub(crate) mod basics;
mod hosted;
mod out_limit;
mod planted_links;
mod signals;

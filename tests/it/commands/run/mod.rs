//! `conjure run`: what it takes, writes and leaves, and how it is interrupted.

pub(crate) mod basics;
mod hosted;
mod out_limit;
mod planted_links;
mod signals;

//! `conjure chat`: with piped lines, and at a terminal.

mod piped;
mod terminal;

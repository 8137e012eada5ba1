//! `conjure chat`: with lines from a pipe, and with a person at a terminal.

mod piped;
mod terminal;

//! `conjure skills`: of this machine, and at the service.

mod check;
mod hosted;
mod local;

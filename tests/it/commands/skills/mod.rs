//! `conjure skills`: local skills, and skills at the service.

mod check;
mod hosted;
mod local;

//! Tenants: what they share, and what nothing of theirs crosses.

mod admission;
mod isolation;
mod keys;

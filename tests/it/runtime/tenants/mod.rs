//! Tenants: shared capacity, and isolation.

mod admission;
mod isolation;
mod keys;

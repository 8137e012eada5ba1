//! Pools in a supervision tree with a paused clock: which items are created, when, and that none is left.

#[cfg(test)]
mod claims;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod lifecycle;

//! The registry, over real directories with real edits.

#[cfg(test)]
mod catalogs;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod events;
#[cfg(test)]
mod fixture;

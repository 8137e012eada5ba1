//! The registry, over real folders that are really edited.

#[cfg(test)]
mod bed;
#[cfg(test)]
mod catalogs;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod events;

//! Pools of spares in a tree, with time that does not pass by itself: what is made, when, and that nothing is left.

#[cfg(test)]
mod bed;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod life;

//! The running guest, driven over pipes by a small synchronous host.

#[cfg(test)]
mod apart;
#[cfg(test)]
mod client;
#[cfg(test)]
mod exec;
#[cfg(test)]
mod files;
#[cfg(test)]
mod fortress;
#[cfg(test)]
mod interference;
#[cfg(test)]
mod jail;
#[cfg(test)]
mod life;
#[cfg(test)]
mod meeting;
#[cfg(test)]
mod pausing;
#[cfg(test)]
mod protocol;
#[cfg(test)]
mod quota;
#[cfg(test)]
mod shelves;
#[cfg(test)]
mod shims;
#[cfg(test)]
mod tunnels;

//! The running guest, driven over pipes by a small synchronous host.

#[cfg(test)]
mod client;
#[cfg(test)]
mod confinement;
#[cfg(test)]
mod content;
#[cfg(test)]
mod exec;
#[cfg(test)]
mod files;
#[cfg(test)]
mod host_socket;
#[cfg(test)]
mod interference;
#[cfg(test)]
mod jail;
#[cfg(test)]
mod jail_isolation;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod pause;
#[cfg(test)]
mod protocol;
#[cfg(test)]
mod quota;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod shim_reuse;
#[cfg(test)]
mod tunnels;

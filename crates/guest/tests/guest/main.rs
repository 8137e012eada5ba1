//! The running guest, driven over pipes by a small synchronous host.

#[cfg(test)]
mod client;
#[cfg(test)]
mod confinement;
#[cfg(test)]
mod content;
#[cfg(test)]
mod files;
#[cfg(test)]
mod host_socket;
#[cfg(test)]
mod jail;
#[cfg(test)]
mod jail_isolation;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod protocol;
#[cfg(test)]
mod quota;
#[cfg(test)]
mod tunnels;

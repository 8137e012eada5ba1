//! Sessions through their public interface.

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod artifacts;
#[cfg(test)]
mod bounds;
#[cfg(test)]
mod debts;
#[cfg(test)]
mod ending;
#[cfg(test)]
mod failing;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod idle_tenants;
#[cfg(test)]
mod leaving;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod listening;
#[cfg(test)]
mod maintenance;
#[cfg(test)]
mod model_change;
#[cfg(test)]
mod overload;
#[cfg(test)]
mod pausing;
#[cfg(test)]
mod pinning;
#[cfg(test)]
mod producing;
#[cfg(test)]
mod runtime;
#[cfg(test)]
mod support;
#[cfg(test)]
mod talking;
#[cfg(test)]
mod travelling;
#[cfg(test)]
mod uploading;
#[cfg(test)]
mod whole;
#[cfg(test)]
mod world;
#[cfg(test)]
mod writer;

//! What the tests of all wires share: services, requests, replies, and a host.

pub(crate) mod host;
pub(crate) mod sent_request;
pub(crate) mod test_reply;
pub(crate) mod test_wire;

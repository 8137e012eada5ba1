//! The proxy's HTTP: heads, bodies, and one forwarded request.

pub(super) mod forward;
pub(super) mod http;
pub(super) mod http_body;
pub(super) mod http_framing;
pub(super) mod http_head;
pub(super) mod read_head;

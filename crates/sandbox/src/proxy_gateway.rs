//! The proxy of a sandbox without a network of its own, and the gateway that serves it.
//!
//! Commands connect to a port of the sandbox's loopback interface. The guest forwards each connection, and a
//! [`Gateway`] serves it on the host. So no part of the proxy's protocol runs in the sandbox. The gateway owns the
//! state; connections end with the sandbox and with the host process.

use std::fmt;
use std::sync::Arc;

use conjure_guest::protocol::{Hello, ProxySpec};
use futures_util::future::BoxFuture;

pub use crate::mux::TunnelStream;

/// Serves the connections of commands to the proxy of their sandbox.
pub trait Gateway: Send + Sync + fmt::Debug {
    /// Serves one connection, and resolves when it has ended. The sandbox runs it in its own task, at most 256 at a
    /// time, and drops it when the sandbox ends. It must not block.
    fn serve(self: Arc<Self>, tunnel: TunnelStream) -> BoxFuture<'static, ()>;
}

/// The proxy for the commands of a sandbox.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// Its port on 127.0.0.1 in the sandbox, which must have its own loopback interface.
    pub port: u16,
    /// The gateway that serves it.
    pub gateway: Arc<dyn Gateway>,
}

/// Addresses that never use the proxy: connections within the sandbox. Not `::1`, because some HTTP clients (httpx
/// before 0.24.1) fail on it.
const NO_PROXY: &str = "localhost,127.0.0.1";

impl Proxy {
    /// Adds the proxy to the guest's handshake, and the usual variables for commands.
    ///
    /// Existing variables stay. If a name exists in upper or lower case, the other form is not added: a program could
    /// prefer it. `all_proxy` names the proxy as an HTTP proxy, which every program that reads the variable can use;
    /// the proxy understands SOCKS5 as well.
    pub(crate) fn add_to_environment(&self, hello: &mut Hello) {
        hello.proxy = Some(ProxySpec { port: self.port });
        let url = format!("http://127.0.0.1:{}", self.port);
        for (name, value) in
            [("http_proxy", &*url), ("https_proxy", &*url), ("all_proxy", &*url), ("no_proxy", NO_PROXY)]
        {
            let (lower, upper) = (name.to_owned(), name.to_uppercase());
            if !hello.env.contains_key(&lower) && !hello.env.contains_key(&upper) {
                hello.env.extend([(lower, value.to_owned()), (upper, value.to_owned())]);
            }
        }
        // Node.js uses the other variables only if this one is set.
        hello.env.entry("NODE_USE_ENV_PROXY".to_owned()).or_insert_with(|| "1".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug)]
    struct Nobody;

    impl Gateway for Nobody {
        fn serve(self: Arc<Self>, _: TunnelStream) -> BoxFuture<'static, ()> {
            Box::pin(async {})
        }
    }

    fn introduced(own: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut hello = Hello { env: own.collect(), ..Hello::default() };
        Proxy { port: 3128, gateway: Arc::new(Nobody) }.add_to_environment(&mut hello);
        assert_eq!(hello.proxy, Some(ProxySpec { port: 3128 }));
        hello.env
    }

    #[test]
    fn commands_find_the_proxy_in_either_case() {
        let env = introduced(&[]);
        for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
            assert_eq!(env[name], "http://127.0.0.1:3128", "{name}");
        }
        assert_eq!((&*env["no_proxy"], &*env["NO_PROXY"]), (NO_PROXY, NO_PROXY));
        assert_eq!(env["NODE_USE_ENV_PROXY"], "1");
        assert_eq!(env.len(), 9);
    }

    #[test]
    fn what_is_said_already_stands_in_both_cases() {
        let own = [("HTTPS_PROXY", "http://elsewhere"), ("no_proxy", ""), ("NODE_USE_ENV_PROXY", "0")];
        let env = introduced(&own);
        for (name, value) in own {
            assert_eq!(env[name], value);
        }
        assert!(!env.contains_key("https_proxy") && !env.contains_key("NO_PROXY"));
        assert_eq!(env["http_proxy"], "http://127.0.0.1:3128");
    }
}

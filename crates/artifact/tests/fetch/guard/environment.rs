//! Environment variables do not change the target of a fetch.

use std::net::TcpListener;
use std::process::Command;

#[test]
#[expect(clippy::disallowed_methods, reason = "the environment of a process is given when it is started")]
fn proxy_variables_of_the_environment_are_ignored() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    // This very program, with one of its other tests.
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "guard::refused::a_url_is_fetched_into_the_store"]);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        child.env(name, &address).env(name.to_lowercase(), &address);
    }
    let output =
        child.env_remove("NO_PROXY").env_remove("no_proxy").env_remove("REQUEST_METHOD").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
    assert_eq!(proxy.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

//! Common clients that use the proxy through the usual environment variables.
//!
//! `curl` and `python3` must exist where `CONJURE_TEST_REQUIRE=all` is set; else a missing one is reported.
//! Node supports proxies by `NODE_USE_ENV_PROXY` since 22.21 and 24.5, and is tested where it is new enough.

use std::path::{Path, PathBuf};
use std::process::Output;

use base64::Engine;
use conjure_egress::{EgressPolicy, WebPorts};
use tokio::process::Command;

use crate::support::{Proxy, Server, egress, limited, tls_server};

struct ClientFixture {
    proxy: Proxy,
    secure: Server,
    plain: Server,
    dir: tempfile::TempDir,
    root: PathBuf,
}

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello, all";

async fn start_client(policy: impl FnOnce(&[u16]) -> EgressPolicy) -> ClientFixture {
    let (root, secure) = tls_server(&["good.example", "*.good.example", "other.example"]).await;
    let (plain, _) = Server::recording(HELLO, "\r\n\r\n").await;
    let ports = WebPorts { http: vec![plain.port], https: vec![secure.port] };
    let proxy = Proxy::start_with(egress(policy(&[secure.port, plain.port])).with_web_ports(ports)).await;
    let dir = tempfile::tempdir().unwrap();
    let encoded = base64::engine::general_purpose::STANDARD.encode(&root);
    let lines: Vec<&str> =
        (0..encoded.len()).step_by(64).map(|at| &encoded[at..encoded.len().min(at + 64)]).collect();
    let pem = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"));
    let root = dir.path().join("root.pem");
    std::fs::write(&root, pem).unwrap();
    ClientFixture { proxy, secure, plain, dir, root }
}

fn only_listed(ports: &[u16]) -> EgressPolicy {
    let entries: Vec<String> =
        ports.iter().map(|port| format!("good.example:{port},*.good.example:{port}")).collect();
    limited(entries.join(","))
}

#[expect(clippy::disallowed_methods, reason = "the clients are programs of the test, not of a sandbox")]
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    for name in [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
    ] {
        command.env_remove(name);
    }
    command.kill_on_drop(true);
    command
}

/// True if `program --version` runs.
async fn has_program(program: &str) -> bool {
    if command(program).arg("--version").output().await.is_ok_and(|output| output.status.success()) {
        return true;
    }
    test_support::skip(&format!("`{program}` is not there"), &format!("apt-get install {program}"));
    false
}

fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

impl ClientFixture {
    fn proxy(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.proxy.address)
    }

    async fn curl(&self, arguments: &[&str]) -> Output {
        let mut curl = command("curl");
        curl.args(["--silent", "--show-error", "--max-time", "300", "--cacert"]).arg(&self.root);
        curl.args(arguments).output().await.unwrap()
    }
}

#[tokio::test]
async fn curl_reaches_allowed_hosts_by_every_protocol() {
    if !has_program("curl").await {
        return;
    }
    let fixture = start_client(only_listed).await;
    let secure = format!("https://{}/", fixture.secure.at("good.example"));
    let below = format!("https://{}/", fixture.secure.at("www.good.example"));
    let plain = format!("http://{}/", fixture.plain.at("good.example"));
    for scheme in ["http", "socks5h"] {
        let proxy = fixture.proxy(scheme);
        for (url, expected) in
            [(&secure, "hello over TLS"), (&below, "hello over TLS"), (&plain, "hello, all")]
        {
            let output = fixture.curl(&["--proxy", &proxy, url]).await;
            assert_eq!(output_text(&output), expected, "{scheme} {url}");
        }
        let output = fixture.curl(&["--proxy", &proxy, "--proxytunnel", &plain]).await;
        assert_eq!(output_text(&output), "hello, all", "{scheme}");
    }
    let output = fixture
        .curl(&[
            "--proxy",
            &fixture.proxy("http"),
            "--data-binary",
            "@/etc/passwd",
            "-H",
            "Expect: 100-continue",
            // The client does not send the body before a slow server asks for it.
            "--expect100-timeout",
            "300",
            &plain,
        ])
        .await;
    assert_eq!(output_text(&output), "hello, all");
    assert!(fixture.proxy.reasons().is_empty(), "{:?}", fixture.proxy.reasons());
}

#[tokio::test]
async fn curl_shows_why_it_is_refused() {
    if !has_program("curl").await {
        return;
    }
    let fixture = start_client(only_listed).await;
    let http = fixture.proxy("http");
    let port = fixture.secure.port;
    let connect = ["--proxy", &http, "--output", "/dev/null", "--write-out", "%{http_connect}"];
    for host in ["other.example", "127.0.0.1", "0x7f.1", "[::1]", "169.254.169.254"] {
        let url = format!("https://{host}:{port}/");
        let output = fixture.curl(&[&connect[..], &[&url]].concat()).await;
        assert_eq!(output.status.code(), Some(56), "{host}: {}", output_text(&output));
        assert!(output_text(&output).starts_with("403"), "{host}: {}", output_text(&output));
        let plain = fixture.curl(&["--proxy", &http, &url.replacen("https", "http", 1)]).await;
        assert!(output_text(&plain).contains("was refused: "), "{host}: {}", output_text(&plain));
        let socks = fixture.curl(&["--proxy", &fixture.proxy("socks5h"), &url]).await;
        assert_eq!(socks.status.code(), Some(97), "{host}: {}", output_text(&socks));
    }
    // The client asks the proxy for one name and the server for another.
    let fronting = format!("::{}", fixture.secure.at("good.example"));
    let url = format!("https://{}/", fixture.secure.at("other.example"));
    let output = fixture.curl(&["--proxy", &http, "--connect-to", &fronting, &url]).await;
    assert_eq!(output.status.code(), Some(35), "{}", output_text(&output));
    assert!(output_text(&output).contains("unrecognized name"), "{}", output_text(&output));
}

#[tokio::test]
async fn a_redirect_leads_to_no_forbidden_host() {
    if !has_program("curl").await {
        return;
    }
    let (target, received) = Server::recording(HELLO, "\r\n\r\n").await;
    for host in ["evil.example", "127.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "169.254.169.254"] {
        let location = format!("http://{host}:{}/", target.port);
        let answer = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        let (server, _) = Server::recording(answer.leak(), "\r\n\r\n").await;
        let fixture = start_client(|_| limited(server.at("good.example"))).await;
        for scheme in ["http", "socks5h"] {
            let url = format!("http://{}/", server.at("good.example"));
            let output = fixture.curl(&["--proxy", &fixture.proxy(scheme), "--location", &url]).await;
            let refused = if scheme == "http" {
                output_text(&output).contains("was refused")
            } else {
                output.status.code() == Some(97)
            };
            assert!(refused, "{scheme} {host}: {}", output_text(&output));
        }
    }
    assert!(received.all().is_empty());
}

const PYTHON: &str = r#"
import ssl, sys, urllib.request, urllib.error
context = ssl.create_default_context(cafile=sys.argv[1])
opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
for url in sys.argv[2:]:
    try:
        print(opener.open(url, timeout=300).read().decode().splitlines()[0])
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().splitlines()[0])
    except OSError as error:
        print(error)
"#;

#[tokio::test]
async fn pythons_urllib_is_served() {
    if !has_program("python3").await {
        return;
    }
    let fixture = start_client(only_listed).await;
    let urls = [
        format!("https://{}/", fixture.secure.at("good.example")),
        format!("http://{}/", fixture.plain.at("good.example")),
        format!("https://{}/", fixture.secure.at("other.example")),
        format!("http://{}/", fixture.plain.at("other.example")),
    ];
    let proxy = fixture.proxy("http");
    let mut python = command("python3");
    python.arg("-c").arg(PYTHON).arg(&fixture.root).args(&urls);
    let output = python.env("HTTP_PROXY", &proxy).env("HTTPS_PROXY", &proxy).output().await.unwrap();
    let stdout = output_text(&output);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[..2], ["hello over TLS", "hello, all"], "{stdout}");
    assert_eq!(lines[2], "<urlopen error Tunnel connection failed: 403 Forbidden>", "{stdout}");
    let refused = format!(
        "403 conjure: `{}` was refused: the name is not on the list of allowed hosts",
        fixture.plain.at("other.example")
    );
    assert_eq!(lines[3], refused, "{stdout}");
}

const NODE: &str = r"
const say = (url) => fetch(url).then((answer) => answer.text(), (error) => `failed: ${error.cause ?? error}`);
(async () => { for (const url of process.argv.slice(1)) console.log((await say(url)).split('\n')[0]); })();
";

/// True if Node supports the variable.
async fn node_is_new_enough() -> bool {
    let version = command("node").arg("--version").output().await;
    let version = version.map(|output| output_text(&output)).unwrap_or_default();
    let mut numbers =
        version.trim().trim_start_matches('v').split('.').filter_map(|number| number.parse::<u32>().ok());
    let known = match (numbers.next(), numbers.next()) {
        (Some(22), Some(minor)) => minor >= 21,
        (Some(24), Some(minor)) => minor >= 5,
        (Some(major), _) => major > 24,
        _ => false,
    };
    if !known {
        let reason = format!("no `node` that knows NODE_USE_ENV_PROXY (22.21, 24.5), but {version:?}");
        test_support::not_applicable(&reason);
    }
    known
}

#[tokio::test]
async fn nodes_fetch_is_served() {
    if !node_is_new_enough().await {
        return;
    }
    let fixture = start_client(only_listed).await;
    let proxy = fixture.proxy("http");
    let mut node = command("node");
    node.arg("-e").arg(NODE).args([
        format!("https://{}/", fixture.secure.at("good.example")),
        format!("http://{}/", fixture.plain.at("good.example")),
        format!("https://{}/", fixture.secure.at("other.example")),
    ]);
    node.env("NODE_USE_ENV_PROXY", "1").env("HTTP_PROXY", &proxy).env("HTTPS_PROXY", &proxy);
    let output = node.env("NODE_EXTRA_CA_CERTS", &fixture.root).output().await.unwrap();
    let stdout = output_text(&output);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[..2], ["hello over TLS", "hello, all"], "{stdout}");
    assert!(lines[2].starts_with("failed: "), "{stdout}");
}

#[tokio::test]
async fn git_works_over_tls_and_shows_refusals() {
    if !has_program("git").await {
        return;
    }
    let fixture = start_client(only_listed).await;
    let ask = async |host: &str| {
        let mut git = command("git");
        git.current_dir(fixture.dir.path())
            .env("HTTPS_PROXY", fixture.proxy("http"))
            .env("GIT_SSL_CAINFO", Path::new(&fixture.root));
        git.env("GIT_TERMINAL_PROMPT", "0")
            .args(["ls-remote", &format!("https://{}/repository", fixture.secure.at(host))]);
        output_text(&git.output().await.unwrap())
    };
    // The server is no repository, but git reaches it over TLS.
    let reached = ask("good.example").await;
    assert!(!reached.contains("fatal: unable to access"), "{reached}");
    assert!(!fixture.proxy.recorder.connected().is_empty() && fixture.proxy.reasons().is_empty());
    let refused = ask("other.example").await;
    assert!(refused.contains("CONNECT tunnel failed, response 403"), "{refused}");
}

//! Programs that find the proxy by the variables that every command has, and are told nothing else.

use conjure_egress::WebPorts;
use conjure_sandbox::{CommandEnd, NetworkPolicy};

use crate::outside::Server;
use crate::support::text;
use crate::web::{HELLO, allowing, plain_server, sandbox, web};

const CURL: &str = "curl --silent --show-error --max-time 60 --cacert root.pem";

#[tokio::test]
async fn curl_reaches_allowed_hosts_and_shows_refusals() {
    let Some((fixture, plain, secure)) = web().await else { return };
    if !fixture.has("curl").await {
        return;
    }
    for host in ["good.example", "www.good.example"] {
        let answer = fixture.bash(&format!("{CURL} https://{host}:{}/", secure.port)).await;
        assert_eq!(answer, "hello over TLS");
    }
    let answer = fixture.bash(&format!("{CURL} http://good.example:{}/", plain.port)).await;
    assert_eq!(answer, "hello, all");
    // SOCKS with names, on the same port.
    let socks = "env -u http_proxy -u HTTP_PROXY -u https_proxy -u HTTPS_PROXY \
                 all_proxy=socks5h://${http_proxy#http://}";
    let answer = fixture.bash(&format!("{socks} {CURL} https://good.example:{}/", secure.port)).await;
    assert_eq!(answer, "hello over TLS");
    assert_eq!(fixture.notes.refusals(), [""; 0]);

    for host in ["other.example", "unknown.example", "169.254.169.254", "10.1.2.3"] {
        let port = plain.port;
        let answer = fixture.bash(&format!("{CURL} http://{host}:{port}/")).await;
        assert!(answer.starts_with("conjure: ") && answer.contains("was refused: "), "{answer}");
        let connect = "--output /dev/null --write-out %{http_connect}";
        let answer = fixture.run(&["bash", "-c", &format!("{CURL} {connect} https://{host}:{port}/")]).await;
        let answer = answer.unwrap();
        assert_eq!(answer.end, CommandEnd::Exited(56));
        // curl's own message comes first.
        assert!(text(&answer).ends_with("403"), "{}", text(&answer));
    }
    let refusals = fixture.notes.refusals();
    assert_eq!(refusals.len(), 8, "{refusals:?}");
    assert!(
        refusals[0].contains("`other.example") && refusals[0].contains("not on the list"),
        "{refusals:?}"
    );
}

const PYTHON: &str = r#"
import ssl, sys, urllib.request, urllib.error
context = ssl.create_default_context(cafile="root.pem")
opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
for url in sys.argv[1:]:
    try:
        print(opener.open(url, timeout=60).read().decode().splitlines()[0])
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().splitlines()[0])
    except OSError as error:
        print(error)
"#;

#[tokio::test]
async fn python_reaches_allowed_hosts_and_shows_refusals() {
    let Some((fixture, plain, secure)) = web().await else { return };
    if !fixture.has("python3").await {
        return;
    }
    let urls = [
        format!("https://good.example:{}/", secure.port),
        format!("http://good.example:{}/", plain.port),
        format!("https://other.example:{}/", secure.port),
        format!("http://other.example:{}/", plain.port),
    ];
    let answers = fixture.python(PYTHON, &urls.each_ref().map(String::as_str)).await;
    let lines: Vec<&str> = answers.lines().collect();
    assert_eq!(lines[..2], ["hello over TLS", "hello, all"], "{answers}");
    assert!(lines[2].contains("403 Forbidden"), "{answers}");
    assert!(lines[3].starts_with("403 conjure: `other.example"), "{answers}");
}

const NODE: &str = r"
const say = (url) => fetch(url).then((answer) => answer.text(), (error) => `failed: ${error.cause ?? error}`);
(async () => { for (const url of process.argv.slice(1)) console.log((await say(url)).split('\n')[0]); })();
";

#[tokio::test]
async fn node_reaches_allowed_hosts_where_it_supports_proxies() {
    let Some((fixture, plain, secure)) = web().await else { return };
    let version = fixture.run(&["bash", "-c", "node --version"]).await.unwrap();
    let version = text(&version);
    let mut numbers =
        version.trim().trim_start_matches('v').split('.').map_while(|part| part.parse::<u32>().ok());
    let knows_how = match (numbers.next(), numbers.next()) {
        (Some(22), Some(minor)) => minor >= 21,
        (Some(24), Some(minor)) => minor >= 5,
        (Some(major), _) => major > 24,
        _ => false,
    };
    if !knows_how {
        let reason = format!("no `node` that knows NODE_USE_ENV_PROXY (22.21, 24.5), but {version:?}");
        test_support::not_applicable(&reason);
        return;
    }
    let urls = [
        format!("https://good.example:{}/", secure.port),
        format!("http://good.example:{}/", plain.port),
        format!("https://other.example:{}/", secure.port),
    ];
    let node = ["env", "NODE_EXTRA_CA_CERTS=root.pem", "node", "-e", NODE];
    let answers = fixture.run(&[&node[..], &urls.each_ref().map(String::as_str)].concat()).await.unwrap();
    let answers = text(&answers);
    let lines: Vec<&str> = answers.lines().collect();
    assert_eq!(lines[..2], ["hello over TLS", "hello, all"], "{answers}");
    assert!(lines[2].starts_with("failed: "), "{answers}");
}

#[tokio::test]
async fn the_full_policy_allows_all_public_and_no_private_hosts() {
    let Some(fixture) = plain_server(NetworkPolicy::Full).await else { return };
    if !fixture.has("curl").await {
        return;
    }
    for host in ["10.0.0.1", "169.254.169.254", "[::1]", "[fd00::1]", "0"] {
        let answer = fixture.bash(&format!("{CURL} --globoff http://{host}:81/")).await;
        assert!(answer.contains("was refused: "), "{answer}");
    }
    assert_eq!(fixture.notes.refusals().len(), 5);
}

#[tokio::test]
async fn no_redirect_bypasses_the_allow_list() {
    let (target, _) = Server::recording(HELLO, "\r\n\r\n").await;
    let places = ["other.example", "169.254.169.254", "10.1.2.3"];
    let mut ports = vec![target.port];
    let mut redirects = Vec::new();
    for location in places {
        let answer = format!(
            "HTTP/1.1 302 Found\r\nLocation: http://{location}:{}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            target.port
        );
        let (server, _) = Server::recording(Box::leak(answer.into_boxed_str()), "\r\n\r\n").await;
        ports.push(server.port);
        redirects.push(server);
    }
    let web_ports = WebPorts { http: ports.clone(), https: Vec::new() };
    let network = allowing(&["good.example"], &ports);
    let Some(fixture) = sandbox(network, web_ports, &[]).await else { return };
    if !fixture.has("curl").await {
        return;
    }
    for server in &redirects {
        let answer = fixture.bash(&format!("{CURL} --location http://good.example:{}/", server.port)).await;
        assert!(answer.starts_with("conjure: ") && answer.contains("was refused: "), "{answer}");
    }
    assert_eq!(fixture.notes.refusals().len(), places.len());
}

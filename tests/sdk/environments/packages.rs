//! Packages of environments. The index is one of the test, so the sandbox is `local`: jails reach no private address.

use std::path::Path;

use crate::server::{RunningServer, folder, python, run_python};

#[tokio::test]
async fn the_packages_of_an_environment_are_installed_once_and_survive_a_restart() {
    let Some(python) = python().await else { return };
    let data = tempfile::tempdir().unwrap();
    let index = data.path().join("index");
    // Everything that pip is told comes from its own file in the home folder.
    let arguments = |data: &Path| {
        let (data, script) = (data.join("data"), folder().join("scripts/packages.yaml"));
        let fixed = ["serve", "--listen", "127.0.0.1:0", "--sandbox", "local", "--data"];
        let fixed = fixed.map(str::to_owned).into_iter();
        fixed
            .chain([data.display().to_string(), "--script".to_owned(), script.display().to_string()])
            .collect()
    };
    let server = RunningServer::of_command(arguments(data.path()), data.path()).await;
    let input = [server.url(), data.path().to_str().unwrap(), index.to_str().unwrap()];
    let session = run_python(&python, "packages.py", &input).await;
    server.kill().await;
    let server = RunningServer::of_command(arguments(data.path()), data.path()).await;
    run_python(&python, "packages_later.py", &[server.url(), session.trim()]).await;
    server.stop().await;
}

/// Packages of the sandbox's Python are not installed, so this test needs no network.
#[tokio::test]
async fn a_jail_has_the_packages_to_read_and_needs_a_network_that_permits_them() {
    let Some(python) = python().await else { return };
    if !test_support::has_user_namespaces() {
        return test_support::skip("this machine permits no jail", "unprivileged user namespaces are needed");
    }
    for (network, told) in [
        (r#"["pypi.org", "files.pythonhosted.org"]"#, "permitted"),
        (r#"["pypi.org"]"#, "refused"),
        ("\"none\"", "refused"),
    ] {
        let data = tempfile::tempdir().unwrap();
        let (config, script) = (data.path().join("config.toml"), folder().join("scripts/packages_jail.yaml"));
        std::fs::write(&config, format!("network = {network}\n")).unwrap();
        let fixed = ["serve", "--listen", "127.0.0.1:0", "--sandbox", "jail", "--data"];
        let given =
            [data.path().join("data"), "--script".into(), script].map(|path| path.display().to_string());
        let arguments = fixed.into_iter().map(str::to_owned).chain(given).collect();
        let environment = [("CONJURE_CONFIG", config.to_str().unwrap())];
        let server = RunningServer::of_command_with(arguments, data.path(), &environment).await;
        run_python(&python, "packages_jail.py", &[server.url(), told]).await;
        server.stop().await;
    }
}

//! Packages of environments. The index is one of the test, so the sandbox is `local`: jails reach no private address.

use std::path::Path;

use crate::server::{Started, folder, python, run_python};

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
    let server = Started::of_command(arguments(data.path()), data.path()).await;
    let given = [server.url(), data.path().to_str().unwrap(), index.to_str().unwrap()];
    let session = run_python(&python, "packages.py", &given).await;
    server.kill().await;
    let server = Started::of_command(arguments(data.path()), data.path()).await;
    run_python(&python, "packages_later.py", &[server.url(), session.trim()]).await;
    server.stop().await;
}

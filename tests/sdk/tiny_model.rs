//! The flows of the vendor's examples with a real model server behind `conjure serve`.

use test_support::TinyModel;

use crate::server::{RunningServer, run_python};

#[tokio::test]
async fn the_example_flows_work_with_a_real_model() {
    let Some(sdk) = crate::server::python().await else { return };
    let Some(model) = TinyModel::start(8192).await else { return };
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("config.toml");
    let text = format!(
        "[models.tiny]\napi = 'chat'\nmodel = 'tiny'\nbase_url = '{}/v1'\n[serve.models]\n'*' = 'tiny'\n",
        model.url
    );
    std::fs::write(&config, text).unwrap();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--sandbox", "local", "--data"].map(str::to_owned);
    let arguments = arguments.into_iter().chain([data.path().display().to_string()]).collect();
    let environment = [("CONJURE_CONFIG", config.to_str().unwrap())];
    let server = RunningServer::of_command_with(arguments, data.path(), &environment).await;
    run_python(&sdk, "tiny_model.py", &[server.url()]).await;
    server.stop().await;
}

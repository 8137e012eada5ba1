//! The flows of the vendor's examples with a real model server behind `conjure serve`.

use test_support::TinyModel;

use crate::server::{RunningServer, run_python, serve};

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
    let mut command = serve("local", data.path(), data.path());
    command.env("CONJURE_CONFIG", config);
    let server = RunningServer::spawn(command).await;
    run_python(&sdk, "tiny_model.py", &[server.url()]).await;
    server.stop().await;
}

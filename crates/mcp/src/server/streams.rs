//! [`serve`]: serves one client over a pair of streams.

use rmcp::ServiceExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::client::ServedClient;
use super::handler::Handler;

/// Serves one client until its input ends or `stopping` is cancelled.
///
/// # Errors
/// The reason why the client cannot be served, as text.
pub async fn serve<R, W>(
    client: ServedClient,
    (input, output): (R, W),
    stopping: CancellationToken,
) -> Result<(), String>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let served = tokio::select! {
        served = Handler::One(client).serve((input, output)) => served,
        () = stopping.cancelled() => return Ok(()),
    };
    let service = match served {
        Ok(service) => service,
        // The client closed the connection before it sent anything.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let ending = service.cancellation_token();
    tokio::select! {
        ended = service.waiting() => ended.map(drop).map_err(|error| error.to_string()),
        () = stopping.cancelled() => {
            ending.cancel();
            Ok(())
        }
    }
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use std::sync::Arc;

    use conjure_conversation::{ToolCall, ToolDefinition, ToolResult};
    use conjure_skill::{Mode, Skill};
    use rmcp::model::{
        ClientConfig, GetSkillRequestParams, ProtocolVersion, ReadResourceRequestParams, ResourceContents,
        SkillResources,
    };
    use rmcp::{ClientLifecycleMode, ClientServiceExt as _};

    use super::*;
    use crate::server::{ToolFuture, ToolHost};

    struct NoTools;

    impl ToolHost for NoTools {
        fn definitions(&self) -> Arc<[ToolDefinition]> {
            Arc::default()
        }

        fn call<'a>(&'a self, calls: &'a [ToolCall]) -> ToolFuture<'a> {
            Box::pin(async { ToolResult::error(&calls[0].id, "there are no tools") })
        }
    }

    #[tokio::test]
    async fn a_client_verifies_every_file_of_a_skill() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("report");
        std::fs::create_dir_all(root.join("assets")).unwrap();
        let manual = "---\nname: report\ndescription: Writes reports.\nlicense: MIT\n---\nWrite it.\n";
        std::fs::write(root.join("SKILL.md"), manual).unwrap();
        std::fs::write(root.join("assets/logo.bin"), [0xff, 0xfe, 0]).unwrap();
        let skill = Arc::new(Skill::load(&root, Mode::Strict).unwrap());

        let client = ServedClient::new([skill], Arc::new(NoTools), None);
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let stopping = CancellationToken::new();
        let serving = serve(client, tokio::io::split(ours), stopping.clone());
        let asking = async {
            let newest =
                ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
            let client = ClientConfig::default().serve_with_lifecycle(theirs, newest).await.unwrap();
            let skills = client.list_all_skills().await.unwrap();
            let [skill] = skills.as_slice() else { panic!("{skills:?}") };
            skill.validate().unwrap();
            assert_eq!(skill.frontmatter.extra["license"], "MIT");
            let SkillResources::Files(files) = &skill.resources else { panic!("{skill:?}") };
            assert_eq!(files.len(), 2);
            for file in files {
                let read =
                    client.read_resource(ReadResourceRequestParams::new(file.uri.clone())).await.unwrap();
                let bytes = match &read.contents[0] {
                    ResourceContents::TextResourceContents { text, .. } => text.clone().into_bytes(),
                    ResourceContents::BlobResourceContents { blob, .. } => {
                        use base64::Engine as _;
                        base64::engine::general_purpose::STANDARD.decode(blob).unwrap()
                    }
                    other => panic!("{other:?}"),
                };
                file.verify(&bytes).unwrap();
            }
            let one = client.get_skill(GetSkillRequestParams::new("skill://report/SKILL.md")).await.unwrap();
            assert_eq!(&one.skill, skill);
            assert!(client.get_skill(GetSkillRequestParams::new("skill://other/SKILL.md")).await.is_err());
            stopping.cancel();
        };
        let (served, ()) = tokio::join!(serving, asking);
        served.unwrap();
    }
}

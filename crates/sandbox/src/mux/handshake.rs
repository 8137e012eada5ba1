//! The first words: the host says what the sandbox is, the guest that it is ready.

use conjure_guest::protocol::{Decoder, FrameKind, Hello, PROTOCOL_VERSION, Welcome, encode_into};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::{SandboxError, SandboxErrorKind};

/// Greets the guest and waits for its greeting; yields the decoder with what followed it. The caller bounds the
/// time.
///
/// # Errors
/// `Unavailable`, when the stream ends or the guest says anything but a greeting of this version.
pub(crate) async fn shake_hands(
    reader: &mut (dyn AsyncRead + Send + Unpin),
    writer: &mut (dyn AsyncWrite + Send + Unpin),
    hello: &Hello,
) -> Result<Decoder, SandboxError> {
    let payload = serde_json::to_vec(hello).map_err(failed)?;
    let mut bytes = Vec::new();
    encode_into(&mut bytes, FrameKind::Hello, 0, &payload).map_err(failed)?;
    writer.write_all(&bytes).await.map_err(failed)?;
    writer.flush().await.map_err(failed)?;

    let mut decoder = Decoder::new();
    let mut buffer = [0; 1024];
    let frame = loop {
        if let Some(frame) = decoder.next_frame().map_err(failed)? {
            break frame;
        }
        match reader.read(&mut buffer).await.map_err(failed)? {
            0 => return Err(failed("it ended before its greeting")),
            length => decoder.push(&buffer[..length]),
        }
    };
    if frame.kind != FrameKind::Welcome || frame.channel != 0 {
        return Err(failed(format!("its first frame is {:?} instead of a greeting", frame.kind)));
    }
    let welcome: Welcome = frame.json().map_err(failed)?;
    if welcome.version != PROTOCOL_VERSION {
        return Err(failed(format!(
            "it speaks version {} of the protocol, this host version {PROTOCOL_VERSION}: give a guest of this \
             version in `CONJURE_GUEST` when building, or none",
            welcome.version
        )));
    }
    Ok(decoder)
}

fn failed(reason: impl std::fmt::Display) -> SandboxError {
    SandboxError::new(SandboxErrorKind::Unavailable, format!("the guest did not start: {reason}"))
}

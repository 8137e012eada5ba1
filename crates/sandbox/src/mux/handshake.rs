//! The handshake: the host describes the sandbox, and the guest reports that it is ready.

use conjure_guest::protocol::{
    Decoder, FrameKind, Hello, PROTOCOL_VERSION, SetupError, Welcome, encode_into,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::{SandboxError, SandboxErrorKind};

/// A failed handshake.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The guest could not confine itself; it sent the reason.
    SetUp(SetupError),
    /// The stream ended, or the guest sent anything but a greeting of this version.
    Other(SandboxError),
}

impl From<SandboxError> for HandshakeError {
    fn from(error: SandboxError) -> Self {
        Self::Other(error)
    }
}

/// Performs the handshake. Returns the guest's greeting, and the decoder with the bytes that followed it. The caller
/// must set a timeout.
///
/// # Errors
/// If the guest cannot confine itself, the stream ends, or the guest sends anything but a greeting of this version.
pub(crate) async fn shake_hands(
    reader: &mut (dyn AsyncRead + Send + Unpin),
    writer: &mut (dyn AsyncWrite + Send + Unpin),
    hello: &Hello,
) -> Result<(Welcome, Decoder), HandshakeError> {
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
            0 => return Err(failed("it ended before its greeting").into()),
            length => decoder.push(&buffer[..length]),
        }
    };
    match (frame.kind, frame.channel) {
        (FrameKind::Welcome, 0) => {}
        (FrameKind::Done, 0) => return Err(HandshakeError::SetUp(frame.json().map_err(failed)?)),
        (kind, _) => return Err(failed(format!("its first frame is {kind:?} instead of a greeting")).into()),
    }
    let welcome: Welcome = frame.json().map_err(failed)?;
    if welcome.version != PROTOCOL_VERSION {
        return Err(failed(format!(
            "it speaks version {} of the protocol, this host version {PROTOCOL_VERSION}: give a guest of this \
             version in `CONJURE_GUEST` when building, or none",
            welcome.version
        ))
        .into());
    }
    if welcome.confinement.is_none() && hello.jail.is_some() {
        return Err(failed("the guest reports no confinement, but one was requested").into());
    }
    Ok((welcome, decoder))
}

fn failed(reason: impl std::fmt::Display) -> SandboxError {
    SandboxError::new(SandboxErrorKind::Unavailable, format!("the guest did not start: {reason}"))
}

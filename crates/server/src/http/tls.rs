//! TLS: a certificate with its key, and the handshake of a connection.
//!
//! State: the current certificate, which a reload replaces. Open connections keep their certificate.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::lock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a certificate file or key file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The only application protocol (ALPN).
const PROTOCOL: &[u8] = b"http/1.1";

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("the file {} cannot be read: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: io::Error,
    },
    /// The file contains no certificate.
    #[error("the file {} has no certificate in the form PEM: {reason}", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file contains no private key.
    #[error("the file {} has no private key in the form PEM: {reason}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The certificate and the key do not match, or cannot be used.
    #[error("the certificate {} and the private key {} cannot be used together: {reason}", certificate.display(), private_key.display())]
    Unusable {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        private_key: PathBuf,
        /// The reason.
        reason: rustls::Error,
    },
}

/// A certificate with its chain and its private key.
#[derive(Clone)]
pub struct TlsCertificate(Arc<ServerConfig>);

/// Shows nothing of the key.
impl fmt::Debug for TlsCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsCertificate").finish_non_exhaustive()
    }
}

impl TlsCertificate {
    /// Reads a certificate with its chain from one file, and its private key from another, both in PEM. Blocks.
    ///
    /// # Errors
    /// If a file cannot be read or does not contain what it should, or if the key does not match the certificate.
    pub fn from_files(certificate: &Path, private_key: &Path) -> Result<Self, TlsError> {
        let no_certificate =
            |reason: String| TlsError::NoCertificate { path: certificate.to_owned(), reason };
        let text = read(certificate)?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| no_certificate(error.to_string()))?;
        if chain.is_empty() {
            return Err(no_certificate("it has no section `BEGIN CERTIFICATE`".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(&read(private_key)?)
            .map_err(|error| TlsError::NoKey { path: private_key.to_owned(), reason: error.to_string() })?;
        let provider = rustls::crypto::ring::default_provider();
        let config = ServerConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
        let mut config = config.map_err(|reason| TlsError::Unusable {
            certificate: certificate.to_owned(),
            private_key: private_key.to_owned(),
            reason,
        })?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

/// The bytes of a small file.
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |reason| TlsError::Read { path: path.to_owned(), reason };
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB")));
    }
    Ok(bytes)
}

/// The current certificate.
#[derive(Debug)]
pub(crate) struct Tls(Mutex<TlsCertificate>);

impl Tls {
    pub(crate) const fn new(certificate: TlsCertificate) -> Self {
        Self(Mutex::new(certificate))
    }

    /// Uses this certificate for new connections.
    pub(crate) fn exchange(&self, certificate: TlsCertificate) {
        *lock(&self.0) = certificate;
    }

    /// Performs the handshake of a connection.
    ///
    /// # Errors
    /// If the client does not speak TLS, disconnects, or takes too long.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        let TlsCertificate(config) = lock(&self.0).clone();
        let handshake = TlsAcceptor::from(config).accept(stream);
        let late =
            |_| io::Error::new(io::ErrorKind::TimedOut, "the client did not complete the handshake in time");
        tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await.map_err(late)?
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};

    use super::*;

    fn pem(label: &str, der: &[u8]) -> String {
        let text = BASE64_STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    }

    /// A certificate and its key.
    fn certified() -> (String, String) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (pem("CERTIFICATE", cert.der()), pem("PRIVATE KEY", &signing_key.serialize_der()))
    }

    /// What is told of these two files, after the name of their directory.
    fn check(certificate: Option<&str>, key: Option<&str>) -> Result<(), String> {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("cert.pem"), dir.path().join("key.pem")];
        for (path, text) in paths.iter().zip([certificate, key]) {
            if let Some(text) = text {
                std::fs::write(path, text).unwrap();
            }
        }
        let read = TlsCertificate::from_files(&paths[0], &paths[1]);
        read.map(|_| ()).map_err(|error| error.to_string().replace(&format!("{}/", dir.path().display()), ""))
    }

    #[test]
    fn a_certificate_needs_its_own_key() {
        let (cert, key) = certified();
        assert_eq!(check(Some(&cert), Some(&key)), Ok(()));
        assert_eq!(check(Some(&format!("{cert}{cert}")), Some(&format!("{cert}{key}"))), Ok(()));
        let other = pem("PRIVATE KEY", &KeyPair::generate().unwrap().serialize_der());
        let broken = cert.replace("MII", "M!!");
        let (cert, key, other, broken) = (&*cert, &*key, &*other, &*broken);
        for (cert, key, part) in [
            (None, Some(key), "the file cert.pem cannot be read: No such file"),
            (Some(cert), None, "the file key.pem cannot be read: No such file"),
            (
                Some("text"),
                Some(key),
                "the file cert.pem has no certificate in the form PEM: it has no section",
            ),
            (Some(key), Some(key), "the file cert.pem has no certificate"),
            (Some(broken), Some(key), "the file cert.pem has no certificate"),
            (Some(cert), Some(cert), "the file key.pem has no private key in the form PEM"),
            (Some(cert), Some(""), "the file key.pem has no private key"),
            (
                Some(cert),
                Some(other),
                "the certificate cert.pem and the private key key.pem cannot be used together",
            ),
        ] {
            let told = check(cert, key).unwrap_err();
            assert!(told.starts_with(part), "{part}: {told}");
        }
        let large = "x".repeat(2 << 20);
        assert!(check(Some(&large), Some(key)).unwrap_err().contains("larger than 1 MiB"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_has_a_time_limit() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = certified();
        let paths = [dir.path().join("cert.pem"), dir.path().join("key.pem")];
        std::fs::write(&paths[0], cert).unwrap();
        std::fs::write(&paths[1], key).unwrap();
        let tls = Tls::new(TlsCertificate::from_files(&paths[0], &paths[1]).unwrap());
        let (_silent, stream) = tokio::io::duplex(64);
        assert_eq!(tls.accept(stream).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
